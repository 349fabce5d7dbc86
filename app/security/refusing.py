"""Answers of the login: refusals of requests and of sockets that are not open yet; what no cache may keep."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Message, Receive, Scope, Send

from app.edge.refusals import answer
from app.security.login_check import LoginLimitedError
from catalog.core.errors import StatementError

SOCKET_ANSWER = "websocket.http.response"

Header = tuple[bytes, bytes]


async def refuse(
    error: StatementError, scope: Scope, receive: Receive, send: Send, more: Iterable[Header] = ()
) -> None:
    """``more``: headers of the answer."""
    status, headers, body = answer(error)
    headers += [*more, (b"cache-control", b"no-store")]
    if isinstance(error, LoginLimitedError):
        headers.append((b"retry-after", str(error.wait_s).encode()))
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind = SOCKET_ANSWER
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def uncached(send: Send) -> Send:
    """An answer's own rule goes before ours."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return sent
