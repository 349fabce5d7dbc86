"""The outermost ASGI application: every request and every socket passes here, whatever route it is for. A
request's body is read whole once the application asks for it, and never for an answer that needs none of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.headers import Fields, headers_of, with_headers
from app.edge.protocols import LINGER_S
from app.edge.request_rules import (
    SOCKET_ANSWER,
    HttpLimits,
    forwarded_refusal,
    refusal_of,
    send_refusal,
    too_large,
    too_slow,
)
from app.edge.trust import Trust, as_addressed
from app.requests.context import HEADER, request_id_of, requested
from catalog.core.errors import RefusedError

log = structlog.get_logger(__name__)

SHORT_BYTES = 64 << 10
"""Size up to which a body is read even if the application does not ask for it, so that the connection can be
kept."""
GONE: Message = {"type": "http.disconnect"}
CLOSE = (b"connection", b"close")


class DeferredBody:
    """Stands in for ``receive`` and ``send`` of a request that has a body. Where it is too large or too slow it
    answers that, and the application sees a client that has gone."""

    def __init__(self, fields: Fields, receive: Receive, send: Send, limits: HttpLimits) -> None:
        self._fields = fields
        self._receive = receive
        self._send = send
        self._limits = limits
        self._body: bytes | None = None
        """None: it has not been read whole."""
        self._is_asked_for = self._is_begun = self._is_over = False

    async def receive(self) -> Message:
        if self._is_over:
            return GONE
        if self._is_asked_for or self._is_begun:
            return await self._receive()
        self._is_asked_for = True
        try:
            self._body = await self._read(self._limits.body_s)
        except RefusedError as refusal:
            if not self._is_begun:
                await self._refuse(refusal)
                self._is_over = True
        if self._body is None:
            return GONE
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if self._is_over:
            return
        if self._body is not None:
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message.get("more_body", False) or self._body is not None:
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._linger()
            await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, message: Message) -> None:
        """The connection is closed with an answer before which its body did not come."""
        self._is_begun = True
        headers = list(message.get("headers", ()))
        is_last = any(name.lower() == CLOSE[0] for name, _ in headers)
        if not is_last and not self._is_asked_for and self._is_short():
            with suppress(RefusedError):
                self._body = await self._read(LINGER_S)
        if self._body is None and not is_last:
            headers.append(CLOSE)
        await self._send({**message, "headers": headers})

    def _is_short(self) -> bool:
        """Check that the body is short and on its way: a client that waits for 100 Continue has not sent it."""
        length = self._fields.first(b"content-length")
        is_known = b"transfer-encoding" not in self._fields.lines and length.isdecimal()
        return is_known and int(length) <= SHORT_BYTES and b"expect" not in self._fields.lines

    async def _read(self, limit_s: float) -> bytes | None:
        """None: the client has gone. Raises RefusedError (too large, too slow)."""
        body = bytearray()
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes_max:
                        raise too_large(self._limits)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError as error:
            raise too_slow("body", limit_s) from error

    async def _refuse(self, refusal: RefusedError) -> None:
        log.info("request refused", name=refusal.kind.name, reason=refusal.message)
        await send_refusal(refusal, {"type": "http"}, self._receive, self.send)

    async def _linger(self) -> None:
        """Wait until the client has read the answer and gone, or has sent all, for at most ``LINGER_S``
        seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await self._receive()).get("more_body", False):
                    pass


ID_FIELD = HEADER.lower().encode()
STARTS = ("http.response.start", "websocket.accept", f"{SOCKET_ANSWER}.start")


class Edge:
    """A body is read whole when the application asks for the first of it: a request that is refused for its
    body has begun nothing, and of one that is refused before none is read. Each answer gets the id of its
    request, and has a line in the log: at DEBUG, or at INFO where the server failed."""

    def __init__(self, app: ASGIApp, trust: Trust, limits: HttpLimits) -> None:
        self._app = app
        self._trust = trust
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        sent, began, status = Fields.of(scope), time.monotonic(), 0
        request_id = request_id_of(sent.lines.get(ID_FIELD, ()))

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] in STARTS:
                status = message.get("status", 0)
                others = [header for header in message.get("headers", ()) if header[0].lower() != ID_FIELD]
                message["headers"] = [*others, (ID_FIELD, request_id.encode())]
            await send(message)

        with requested(request_id):
            try:
                await self._answer(scope, sent, receive, with_id)
            finally:
                # Without the query behind the path, which may hold what is searched.
                write = log.info if status >= HTTPStatus.INTERNAL_SERVER_ERROR else log.debug
                ms = round(1_000 * (time.monotonic() - began), 1)
                write(
                    "request",
                    method=scope.get("method", "WEBSOCKET"),
                    path=scope["path"],
                    status=status,
                    ms=ms,
                )

    async def _answer(self, scope: Scope, sent: Fields, receive: Receive, send: Send) -> None:
        scope = as_addressed(arrived := scope, sent, self._trust)
        fields = sent if scope is arrived else Fields.of(scope)
        refusal = forwarded_refusal(sent, self._trust) or refusal_of(
            scope, fields, sent.all(b"host"), self._trust, self._limits
        )
        if scope["type"] == "http":
            send = with_headers(send, headers_of(scope["path"]))
            if fields.has_body:
                body = DeferredBody(fields, receive, send, self._limits)
                receive, send = body.receive, body.send
        if refusal is None:
            await self._app(scope, receive, send)
            return
        log.info("request refused", path=scope["path"], name=refusal.kind.name, reason=refusal.message)
        await send_refusal(refusal, scope, receive, send)
