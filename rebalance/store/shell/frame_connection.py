"""One connection of a store server: frames in, frames out, in wire format 1.

What is sent while the socket takes nothing waits and goes as one frame afterwards: batches are made by what
waits, never by a timer.

A frame is its length (4 bytes, big-endian), then a msgpack array of [tag, message]. A message is a map of its
fields by name: msgspec reads and writes the core's own classes so, which takes a third of the time of shorter
arrays that Python takes apart (tests/bench/bench_store_wire.py). Fields that a later build adds are skipped by
this one, and have their defaults where an earlier one leaves them out. A tag never changes its meaning.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any, Protocol, cast

import msgspec

from rebalance.exchange.core.exchange_messages import (
    FullMessage,
    LatchCount,
    LatchOpen,
    SingleMessage,
    SingleRequest,
)
from rebalance.store.core.store_effects import Reply
from rebalance.store.core.store_messages import (
    AppendRecords,
    CopiesAnswer,
    CopiesRequest,
    CopyLevelled,
    CopyReadAnswer,
    CopyReadRequest,
    LevelSeen,
    PeerPing,
    ReadRequest,
    RecordsStored,
    ServerRoom,
    StoreAnswer,
    StoreHello,
    StoreMessage,
    SupplyBatch,
    SupplyRequest,
    WriteRequest,
)


class CloseCode(Enum):
    """Reason for closing a connection, given by the side that closes it."""

    NO_HELLO = "NO_HELLO"  # the first message is not a hello, or it did not come in time
    WIRE_FORMAT = "WIRE_FORMAT"  # the hello has a later format
    UNREADABLE = "UNREADABLE"  # a frame holds what is no message of this format
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    REMOVED = "REMOVED"  # the ring has removed this incarnation
    NOT_FOR_THIS_SERVER = "NOT_FOR_THIS_SERVER"  # another name answers at the address
    NOT_ALLOWED = "NOT_ALLOWED"  # a client sent what only servers send, or the other way round
    TOO_MANY_CONNECTIONS = "TOO_MANY_CONNECTIONS"
    TOO_SLOW = "TOO_SLOW"  # too many bytes wait for the other side to read them


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """The last message of a connection. ``accepted``: what would have been."""

    code: CloseCode
    accepted: str


WireMessage = StoreMessage | StoreRefused

TAGS: Mapping[int, type[Any]] = {
    1: StoreHello,
    2: StoreRefused,
    3: ReadRequest,
    4: WriteRequest,
    5: StoreAnswer,
    6: AppendRecords,
    7: RecordsStored,
    8: CopyLevelled,
    9: LevelSeen,
    10: SupplyRequest,
    11: SupplyBatch,
    12: ServerRoom,
    13: SingleMessage,
    14: FullMessage,
    15: SingleRequest,
    16: LatchCount,
    17: LatchOpen,
    18: PeerPing,
    19: CopiesRequest,
    20: CopiesAnswer,
    21: CopyReadRequest,
    22: CopyReadAnswer,
}

LENGTH = Struct(">I")
FRAME_BYTES_MAX = 32 << 20
"""Maximum size of a frame without its length. A full map of 15,000 copies takes some 2 MiB, a batch of supply 1
MiB."""

_tags = {message: tag for tag, message in TAGS.items()}
_decoders = {tag: msgspec.msgpack.Decoder(message) for tag, message in TAGS.items()}
_encoder = msgspec.msgpack.Encoder()
_frame = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])


class WireError(Exception):
    """A frame that this build does not take. ``code`` and the text go to the other side."""

    def __init__(self, code: CloseCode, accepted: str) -> None:
        super().__init__(f"{code.value}: {accepted}")
        self.code = code
        self.accepted = accepted


def encode_frame(messages: Iterable[WireMessage]) -> bytes:
    """Encode a frame with its length. Raises WireError for one that would be larger than others take."""
    body = _encoder.encode([(_tags[type(message)], message) for message in messages])
    check_length(len(body))
    return LENGTH.pack(len(body)) + body


def decode_frame(body: bytes | memoryview) -> list[WireMessage]:
    """Decode a frame without its length. Raises WireError, whatever the bytes are."""
    try:
        return [_decoders[tag].decode(message) for tag, message in _frame.decode(body)]
    except KeyError as error:
        known = f"messages of the kinds 1 to {max(TAGS)}"
        raise WireError(CloseCode.UNREADABLE, f"kind {error} is not known; accepted: {known}") from error
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        text = f"not a message of wire format 1 ({str(error)[:200]})"
        raise WireError(CloseCode.UNREADABLE, text) from error


def check_length(length: int) -> None:
    """Raises WireError."""
    if length > FRAME_BYTES_MAX:
        text = f"a frame has {length} bytes; accepted: up to {FRAME_BYTES_MAX}"
        raise WireError(CloseCode.FRAME_TOO_LARGE, text)


HELD_BYTES_MAX = 64 << 20
UNHEARD_MS = 5_000
"""A connection whose bytes the other side does not acknowledge for so long is lost."""
MESSAGE_BYTES = 100
"""Bytes that a message counts for besides its contents."""

Outgoing = WireMessage | Reply


class ConnectionOwner(Protocol):
    """Receiver of a connection's events, called on the event loop."""

    def received(self, connection: FrameConnection, messages: Sequence[WireMessage]) -> None: ...

    def opened(self, connection: FrameConnection) -> None: ...

    def lost(self, connection: FrameConnection) -> None: ...


class FrameConnection(asyncio.Protocol):
    """``clock_ms``: the clock that a reply's ``until_ms`` is of. ``refusal``: what the other side closed it
    with."""

    def __init__(self, owner: ConnectionOwner, clock_ms: Callable[[], int]) -> None:
        self.refusal: StoreRefused | None = None
        self.is_open = False
        self.ended = asyncio.Event()
        self._owner = owner
        self._clock_ms = clock_ms
        self._transport: asyncio.Transport | None = None
        self._incoming = bytearray()
        self._waiting: list[Outgoing] = []
        self._waiting_bytes = 0
        self._is_paused = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it
        # With 0 asyncio's TLS stops writing although nothing waits, and never begins again.
        transport.set_write_buffer_limits(high=1)
        own_socket = transport.get_extra_info("socket")
        if own_socket is not None and own_socket.family != socket.AF_UNIX:
            own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._transport = transport
        self.is_open = True
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        self._end()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.flush()

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._incoming += data
        try:
            messages = self._taken()
        except WireError as error:
            self.refuse(error.code, error.accepted)
            return
        if messages:
            last = messages[-1]
            if isinstance(last, StoreRefused):
                self.refusal = last
            self._owner.received(self, messages)

    def _taken(self) -> list[WireMessage]:
        """Take the messages of whole frames. Raises WireError."""
        messages: list[WireMessage] = []
        buffer, start = self._incoming, 0
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            check_length(length)
            end = start + LENGTH.size + length
            if len(buffer) < end:
                break
            messages += decode_frame(bytes(buffer[start + LENGTH.size : end]))
            start = end
        del buffer[:start]
        return messages

    # Sending

    def send(self, message: Outgoing) -> None:
        """Queue a message for the next ``flush``, or until the socket takes bytes again."""
        if not self.is_open:
            return
        self._waiting.append(message)
        if self._is_paused:
            self._waiting_bytes += _weight(message)
            if self._waiting_bytes > HELD_BYTES_MAX:
                self._waiting.clear()
                self.refuse(CloseCode.TOO_SLOW, f"up to {HELD_BYTES_MAX} bytes that wait to be read")

    def flush(self) -> None:
        if self._is_paused or not self._waiting or self._transport is None:
            return
        batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._write(batch)

    def refuse(self, code: CloseCode, accepted: str) -> None:
        """Says why, and closes."""
        if self.is_open and self._transport is not None:
            self._transport.write(encode_frame([StoreRefused(code, accepted)]))
        self.close()

    def close(self) -> None:
        """Close after sending what was written before."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def abort(self) -> None:
        """Close at once, also when the event loop ends before the other side has answered a farewell of TLS."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        if self.is_open:
            self.is_open = False
            self.ended.set()
            self._owner.lost(self)

    def _write(self, batch: Sequence[Outgoing]) -> None:
        """Write messages in one frame, or in as many as needed."""
        assert self._transport is not None
        replies = [message for message in batch if isinstance(message, Reply)]
        until_ms = min((reply.until_ms for reply in replies), default=None)
        try:
            frame = encode_frame(self._current(batch))
            # The last look at the clock: after it nothing happens but the write.
            if until_ms is not None and self._clock_ms() >= until_ms:
                frame = encode_frame(self._current(batch))
        except WireError as error:
            if len(batch) == 1:
                self.refuse(error.code, error.accepted)
                return
            half = len(batch) // 2
            self._write(batch[:half])
            self._write(batch[half:])
            return
        self._transport.write(frame)

    def _current(self, batch: Sequence[Outgoing]) -> list[WireMessage]:
        now_ms = self._clock_ms()
        return [answer_at(message, now_ms) if isinstance(message, Reply) else message for message in batch]


def answer_at(reply: Reply, now_ms: int) -> StoreAnswer:
    """Return the answer that may still be given at ``now_ms``."""
    if now_ms < reply.until_ms:
        return reply.answer
    return StoreAnswer(reply.answer.request, reply.late, reply.answer.version)


def _weight(message: Outgoing) -> int:
    """Bytes that it holds, about."""
    match message:
        case AppendRecords(records=records):
            return MESSAGE_BYTES + sum(record.size for record in records)
        case SupplyBatch(records=records, rows=rows):
            return MESSAGE_BYTES + sum(record.size for record in records) + sum(row.size for row in rows)
        case Reply(answer=answer):
            return MESSAGE_BYTES + len(answer.value or b"")
        case WriteRequest(changes=changes):
            return MESSAGE_BYTES + sum(len(change.key) + len(change.value or b"") for change in changes)
        case ReadRequest(key=key):
            return MESSAGE_BYTES + len(key)
        case _:
            return MESSAGE_BYTES
