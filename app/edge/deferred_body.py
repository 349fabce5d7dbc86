"""A request's body: read whole once somebody asks for it, and never for an answer that needs none of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog
from starlette.types import Message, Receive, Send

from app.edge.fields import Fields
from app.edge.http_limits import HttpLimits
from app.edge.http_protocol import LINGER_S
from app.edge.refusals import answer
from app.edge.request_rules import too_large, too_slow
from catalog.core.errors import RefusedError

log = structlog.get_logger(__name__)

SHORT_BYTES = 64 << 10
"""What nobody asks for is read all the same up to here, so that the connection can be kept."""
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
        """And on its way: who expects to be told to go on has not sent it."""
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
        status, headers, body = answer(refusal)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def _linger(self) -> None:
        """Until the client has read the answer and gone, or has sent all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await self._receive()).get("more_body", False):
                    pass
