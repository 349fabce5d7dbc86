"""uvicorn's protocols within limits, of which they have none themselves. HTTP gets a time for headers, a body
that is read only when the application wants it, and parts so small that no connection keeps the event loop for
long. On WebSockets strangers keep their places, and messages are read in small parts.

Bytes that have arrived wait here. The parser gets those of a head as they come, and those of a body while the
application waits for them, which it does once it knows the sender. From the beginning of an answer on, the rest
of its request's body is dropped without being read. Until a login on a connection, its bytes wait for their
turn among those of all strangers (``StrangerShare``), and no more is read meanwhile. Of the two
parsers h11 is used: the other one, which is far faster, limits neither headers nor the bytes between chunks;
with these limits h11 costs little, too.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from app.edge.headers import headers_of
from app.edge.request_rules import HEADER_BYTES_MAX, HEADER_LINES_MAX, HttpLimits, answer, too_slow
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.hosting.client_connections import (
    REQUEST_S,
    ConnectionPlace,
    StrangerShare,
    StrangerTurn,
    knocking,
)

FRAMES_BYTES = 512
"""Some eighty frames of the smallest, which the application takes in one go."""
TURN_S = 0.005
"""The loop is kept no longer: what is left comes after what others have sent."""
HELD_BYTES = 64 << 10
"""More is left in the socket until the application asks for it."""
FRAGMENTS_MAX = 1_000
"""Limit of fragments of one message: each takes some memory, even if it has no bytes."""
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
            part = bytes(self._unread[:FRAMES_BYTES])
            del self._unread[:FRAMES_BYTES]
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


PART_BYTES = 2 << 10
"""Size of the parts that the parser gets. In a body in chunks of one byte these are 340 events of the parser,
some milliseconds."""
OVERHEAD_BYTES_MAX = 16 << 10
OVERHEAD_PART = 64
"""Sizes, extensions and trailers of chunks have at most ``OVERHEAD_BYTES_MAX`` and a byte for each
``OVERHEAD_PART`` of the body: 3,000 chunks may be of one byte, others have 300 at least on average."""
LINGER_S = 1.0
"""A client that still sends when it is refused has so long to read why: a connection that is closed over unread
bytes is reset, and the answer may be lost with it."""
LINGER_BYTES_MAX = 1 << 20
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class _Asked(FlowControl):
    """Tells when the application waits for a body; whether the socket is read, the protocol decides."""

    def __init__(self, transport: asyncio.Transport, on_asked: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_asked = on_asked

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        self.read_paused = False
        self._on_asked()


class BoundedProtocol(H11Protocol):
    """Headers must be whole some time after their first byte, however fast bytes come. A connection on which
    nothing was ever sent is closed after the same time without a word; one that has been answered, after
    uvicorn's own time."""

    limits: ClassVar[HttpLimits]
    strangers: ClassVar[StrangerShare | None]

    def __init__(self, place: ConnectionPlace, **parts: Any) -> None:
        """``parts``: as uvicorn makes its protocols."""
        super().__init__(**parts)
        self._place = place
        self._share = self.strangers if place.is_counted else None
        """Share of strangers, in which this client gets its turns; None: it is not a stranger, or there is no
        login."""
        self._turn: StrangerTurn | None = None
        self._unread = bytearray()
        self._header_timer: asyncio.TimerHandle | None = None
        self._head_end = b""
        self._head_lines = 0
        self._asked_for: object = None
        """The request whose body the application has asked for."""
        self._given = self._body = self._dropped = 0
        """Bytes of the request's body: given to the parser, got from it, and dropped."""
        self._is_pumping = self._is_held = self._is_due = self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        self.flow = _Asked(transport, self._on_asked)
        self._header_timer = self.loop.call_later(self.limits.header_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._stop_timer()
        self._forget_turn()
        self._place.give_back()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Another protocol has the connection from now on, and is told of its end.
        self._is_over = True
        self._stop_timer()
        super().handle_websocket_upgrade(event)
        socket = self.transport.get_protocol()
        assert isinstance(socket, BoundedSocket), "uvicorn is given no other"
        self._hold(False)
        socket.take_over(self._place, bytes(self._unread))
        self._unread.clear()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            self._drop(data)
        else:
            self._unread += data
            if data:
                # It is not idle, however long the turn is away.
                self._unset_keepalive_if_required()
        if self._share is None or not (data or self._unread):
            self._work()
        elif self._turn is None:
            is_request = self.conn.their_state is h11.IDLE and not self._is_over
            later_s = REQUEST_S if is_request else 0.0
            turn = self._share.ask(self._place.network, self._work, later_s)
            if not turn.is_over:
                self._turn = turn
                self._hold(True)

    def _work(self) -> None:
        self._turn = None
        if self._is_over:
            self._hold(self._dropped > LINGER_BYTES_MAX)
            return
        self._pump()
        if self._is_over:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None and self.conn.trailing_data[0]:
            # The next request of a connection that is kept has begun.
            self._header_timer = self.loop.call_later(self.limits.header_s, self._give_up)

    def _let_in(self) -> None:
        """Stop treating the client as a stranger: it has logged in."""
        if self._share is not None:
            self._share = None
            self._forget_turn()
            self._come_back()

    def _forget_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.forget()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._come_back()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP; called while the parser's error is handled."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(_headers_too_large())
        else:
            self._refuse(RefusedError(ErrorKind.REQUEST_MALFORMED, str(error or msg)))

    # Parts

    def _on_asked(self) -> None:
        self._asked_for = self.cycle
        self._pump()

    def _come_back(self) -> None:
        """Go on after others have had their turn."""
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        if not self._is_over and not self.transport.is_closing():
            self.data_received(b"")

    def _pump(self) -> None:
        """Give the parser the bytes that it may have now, for the time of a turn."""
        if self._is_pumping:
            return
        self._is_pumping = True
        until_s = self.loop.time() + TURN_S
        try:
            while not self._is_over and (part := self._next_part()):
                self._give(part)
                if self.loop.time() >= until_s and self._unread:
                    self._come_back()
                    break
        finally:
            self._is_pumping = False
        if not self._is_over:
            self._hold(max(len(self._unread), self._dropped - LINGER_BYTES_MAX) > HELD_BYTES)

    def _give(self, part: bytes) -> None:
        cycle = self.cycle
        before = len(cycle.body) if cycle is not None else 0
        with knocking(self._let_in) if self._share is not None else nullcontext():
            super().data_received(part)
        if cycle is None or cycle is not self.cycle:
            self._given = self._body = self._dropped = 0
            return
        self._body += len(cycle.body) - before
        overhead = self._given - self._body
        is_open = self.conn.their_state is h11.SEND_BODY
        if is_open and overhead > OVERHEAD_BYTES_MAX + self._body // OVERHEAD_PART:
            message = (
                f"sizes, extensions and trailers of chunks have {overhead} bytes, of a body of {self._body}"
            )
            self._refuse(RefusedError(ErrorKind.REQUEST_MALFORMED, message))

    def _next_part(self) -> bytes:
        """Empty: the parser may have nothing now."""
        state = self.conn.their_state
        if state is h11.IDLE:
            return self._head_part()
        if state is not h11.SEND_BODY:
            if state is not h11.DONE:
                self._unread.clear()
            return b""
        if self.cycle.response_started:
            self._drop(self._taken(len(self._unread)))
            return b""
        if self._asked_for is not self.cycle or len(self.cycle.body) >= HELD_BYTES:
            return b""
        part = self._taken(PART_BYTES)
        self._given += len(part)
        return part

    def _head_part(self) -> bytes:
        """Take the next part of the head, and no byte after it: the body is read only when the application
        wants it."""
        part, seen = bytes(self._unread[:PART_BYTES]), len(self._head_end)
        end = _END_OF_HEAD.search(self._head_end + part)
        if end is not None:
            part = part[: end.end() - seen]
        self._head_lines += part.count(b"\n")
        if self._head_lines > HEADER_LINES_MAX:
            self._refuse(_headers_too_large())
            return b""
        self._head_end = b"" if end is not None else (self._head_end + part)[-2:]
        if end is not None:
            self._head_lines = 0
        return self._taken(len(part))

    def _taken(self, size: int) -> bytes:
        part = bytes(self._unread[:size])
        del self._unread[:size]
        return part

    def _drop(self, data: bytes) -> None:
        """Drop bytes of a body that is not read. If there are very many, the rest stays in the socket. If the
        body's length is known, its end is noticed."""
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES_MAX:
            self._hold(True)
        length = dict(self.headers or ()).get(b"content-length")
        if length is not None and self._given + self._dropped >= int(length):
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _hold(self, is_held: bool) -> None:
        if is_held != self._is_held and not self.transport.is_closing():
            self._is_held = is_held
            (self.transport.pause_reading if is_held else self.transport.resume_reading)()

    # Ends

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a client that asks for another protocol is answered in this one."""

    def _give_up(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        begun = bool(self.conn.trailing_data[0])
        if begun and self.conn.our_state is h11.IDLE:
            self._refuse(too_slow("header", self.limits.header_s))
        else:
            self.transport.close()

    def _refuse(self, refusal: RefusedError) -> None:
        """Refuse the request, and read no more. The refusal is sent only where an answer can still be sent: not
        in the middle of another one."""
        self._stop_timer()
        self._is_over = True
        self._unread.clear()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        status, headers, body = answer(refusal)
        events = (
            h11.Response(
                status_code=status,
                headers=[*headers, *headers_of("")],
                reason=HTTPStatus(status).phrase.encode(),
            ),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self._hold(False)
        self.loop.call_later(LINGER_S, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _headers_too_large() -> RefusedError:
    message = f"a request's headers have at most {HEADER_BYTES_MAX} bytes in {HEADER_LINES_MAX} lines"
    return RefusedError(ErrorKind.HEADERS_TOO_LARGE, message)


def protocol_with(limits: HttpLimits, strangers: StrangerShare | None) -> type[BoundedProtocol]:
    return type("Protocol", (BoundedProtocol,), {"limits": limits, "strangers": strangers})
