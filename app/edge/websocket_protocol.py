"""uvicorn's WebSockets within limits, of which it has none itself: strangers keep their places, and messages
are read in small parts."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from rebalance.hosting.connection_places import ConnectionPlace

PART_BYTES = 512
"""Some eighty frames of the smallest, which the application takes in one go."""
TURN_S = 0.005
HELD_BYTES = 64 << 10
FRAGMENTS_MAX = 1_000
"""Of a message: each has a size of its own in memory, also one of no bytes."""
TOO_BIG = 1009


class BoundedSocket(WebSocketsSansIOProtocol):
    """``take_over`` gives it the connection's place, which is kept until the application has let it in; nothing
    behind the upgrade is read before."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._place: ConnectionPlace | None = None
        self._unread = bytearray()
        self._is_let_in = self._is_due = False

    def take_over(self, place: ConnectionPlace, unread: bytes) -> None:
        """``unread``: what came with the upgrade."""
        self._place = place
        self._unread += unread
        if not self.handshake_initiated:
            # What is no upgrade in the end is answered by nobody.
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_back()
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            return
        self._unread += data
        self._pump()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._is_let_in = True
            self._give_back()
            self._pump()
        elif message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # It is answered; uvicorn would log that it is not.
            self.handshake_complete = True

    async def receive(self) -> Any:
        message = await super().receive()
        if self._unread:
            # Not at once: whoever takes messages that are there gives the loop to nobody.
            self._come_back()
        return message

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS_MAX:
            self.frames.clear()
            self.conn.fail(TOO_BIG, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def _pump(self) -> None:
        """Gives the parser what the application can take now, for as long as a turn takes."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TURN_S
        while self._unread and self._is_let_in and not self.read_paused and not self.transport.is_closing():
            part = bytes(self._unread[:PART_BYTES])
            del self._unread[:PART_BYTES]
            super().data_received(part)
            if loop.time() >= until_s:
                self._come_back()
                break
        if not self.transport.is_closing() and not self.read_paused:
            is_held = len(self._unread) > HELD_BYTES
            (self.transport.pause_reading if is_held else self.transport.resume_reading)()

    def _come_back(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        self._pump()

    def _give_back(self) -> None:
        if self._place is not None:
            self._place.give_back()
            self._place = None
