"""Answers of the login: refusals of requests and of sockets that are not open yet; what no cache may keep."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from starlette.types import Message, Receive, Scope, Send

from app.edge.fields import Fields
from app.edge.refusals import answer
from app.security.login_check import LoginLimitedError
from catalog.core.errors import StatementError

AGAIN_S = 2
"""After so long a browser asks again for a page that it could not be given."""
SOCKET_ANSWER = "websocket.http.response"

Header = tuple[bytes, bytes]


async def refuse(
    error: StatementError, scope: Scope, receive: Receive, send: Send, more: Iterable[Header] = ()
) -> None:
    """``more``: headers of the answer. A browser that asked for a page asks again where the server is at fault:
    what it shows has no script that would."""
    status, headers, body = answer(error)
    headers += [*more, (b"cache-control", b"no-store")]
    if status == HTTPStatus.SERVICE_UNAVAILABLE and is_navigation(scope):
        headers.append((b"refresh", str(AGAIN_S).encode()))
    if isinstance(error, LoginLimitedError):
        headers.append((b"retry-after", str(error.wait_s).encode()))
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind = SOCKET_ANSWER
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def is_navigation(scope: Scope) -> bool:
    """Whether a browser asks for a page, which it will show."""
    is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_read and "text/html" in Fields.of(scope).first(b"accept")


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
