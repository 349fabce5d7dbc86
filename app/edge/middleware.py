"""The outermost ASGI application: every request and every socket passes here, whatever route it is for."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.fields import Fields
from app.edge.http_limits import HttpLimits
from app.edge.policies import headers_of
from app.edge.refusals import answer
from app.edge.request_rules import forwarded_refusal, refusal_of, too_large, too_slow
from app.edge.trust import Trust, as_addressed
from catalog.core.errors import RefusedError

log = structlog.get_logger(__name__)

LINGER_S = 1.0
"""A client that still sends when it is refused has so long to read why: a connection that is closed over unread
bytes is reset, and the answer may be lost with it."""
LINGER_BYTES_MAX = 1 << 20
SOCKET_ANSWER = "websocket.http.response"


class GoneError(Exception):
    """The client has left before its body was whole."""


class Edge:
    """Requests are read whole before the application sees them: one that is refused has begun nothing."""

    def __init__(self, app: ASGIApp, trust: Trust, limits: HttpLimits) -> None:
        self._app = app
        self._trust = trust
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        sent = Fields.of(scope)
        scope = as_addressed(arrived := scope, sent, self._trust)
        fields = sent if scope is arrived else Fields.of(scope)
        refusal = forwarded_refusal(sent, self._trust) or refusal_of(
            scope, fields, sent.all(b"host"), self._trust, self._limits
        )
        if scope["type"] == "http":
            send = _with_headers(scope["path"], send)
            if refusal is None and fields.has_body:
                try:
                    receive = _replay(await self._read(receive), receive)
                except GoneError:
                    return
                except RefusedError as error:
                    refusal = error
        if refusal is None:
            await self._app(scope, receive, send)
            return
        log.info("request refused", path=scope["path"], name=refusal.kind.name, reason=refusal.message)
        await (_refuse if scope["type"] == "http" else _refuse_socket)(refusal, scope, receive, send)

    async def _read(self, receive: Receive) -> bytes:
        """Raises RefusedError (too large, too slow) and GoneError."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise GoneError
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > self._limits.body_bytes_max:
                        raise too_large(self._limits)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError as error:
            raise too_slow("body", self._limits.body_s) from error


def _replay(body: bytes, receive: Receive) -> Receive:
    """``receive`` for the application: the body at once, then what comes after it."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _with_headers(path: str, send: Send) -> Send:
    """An answer's own headers go before ours."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.setdefault("headers", [])
            there = {name.lower() for name, _ in own}
            message["headers"] = [*own, *(header for header in headers_of(path) if header[0] not in there)]
        await send(message)

    return sent


async def _refuse(refusal: RefusedError, scope: Scope, receive: Receive, send: Send) -> None:
    status, headers, body = answer(refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if Fields.of(scope).has_body:
        await _linger(receive)
    await send({"type": "http.response.body", "body": b""})


async def _linger(receive: Receive) -> None:
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while dropped <= LINGER_BYTES_MAX:
                message = await receive()
                if not message.get("more_body", False):
                    return
                dropped += len(message["body"])


async def _refuse_socket(refusal: RefusedError, _: Scope, receive: Receive, send: Send) -> None:
    await receive()
    status, headers, body = answer(refusal)
    await send({"type": f"{SOCKET_ANSWER}.start", "status": status, "headers": headers})
    await send({"type": f"{SOCKET_ANSWER}.body", "body": body})
