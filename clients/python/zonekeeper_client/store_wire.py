"""The few messages of store servers that clients send and get, wire format 1.

A frame is its length (4 bytes, big-endian), then a msgpack array of [tag, message]; a message is a map of its
fields by name. Fields that are not here are skipped, or have the server's defaults. Tests bind it to the
server's codec (tests/data/store_client_golden.tsv).
"""

from __future__ import annotations

import asyncio
from struct import Struct

import msgspec

WIRE_FORMAT = 1
LENGTH = Struct(">I")
FRAME_BYTES_MAX = 32 << 20
Position = tuple[int, int]
"""Position of a row: the epoch, and the revision, which counts the partition's writes."""
NO_ROW: Position = (0, 0)


class Hello(msgspec.Struct):
    """A client has no name."""

    name: str = ""
    order: int = 0
    incarnation: str = ""
    wire_format: int = WIRE_FORMAT


class Refused(msgspec.Struct):
    """The last message of a connection."""

    code: str
    accepted: str


class KeyChange(msgspec.Struct):
    """``value`` None deletes the key."""

    key: bytes
    value: bytes | None


class KeyRead(msgspec.Struct):
    """The write is done only while the row is there."""

    key: bytes
    position: Position


class ReadRequest(msgspec.Struct):
    """``request``: a number of its own on the connection; the answer has it."""

    request: int
    zone: int
    partition: int
    key: bytes
    left_ms: int


class WriteRequest(msgspec.Struct):
    """``write``: the operation's id."""

    request: int
    write: str
    zone: int
    partition: int
    changes: tuple[KeyChange, ...]
    reads: tuple[KeyRead, ...]
    left_ms: int
    abandons: tuple[str, ...]


class StoreAnswer(msgspec.Struct):
    """``position``: of what was written or read; ``primary``: who leads, as far as is known."""

    request: int
    code: str
    value: bytes | None = None
    position: Position | None = None
    repeated: bool = False
    primary: str = ""
    detail: str = ""
    abandoned: bool = False


Message = Hello | Refused | StoreAnswer
Sent = Hello | ReadRequest | WriteRequest
TAGS = {Hello: 1, ReadRequest: 3, WriteRequest: 4}
_decoders: dict[int, msgspec.msgpack.Decoder[Message]] = {
    1: msgspec.msgpack.Decoder(Hello),
    2: msgspec.msgpack.Decoder(Refused),
    5: msgspec.msgpack.Decoder(StoreAnswer),
}
_frame = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])


def encode_frame(message: Sent) -> bytes:
    body = msgspec.msgpack.encode([(TAGS[type(message)], message)])
    return LENGTH.pack(len(body)) + body


def decode_frame(body: bytes) -> list[Message]:
    """Decode a frame without its length; unknown kinds are left out. Raises ValueError."""
    try:
        return [_decoders[tag].decode(raw) for tag, raw in _frame.decode(body) if tag in _decoders]
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a message of wire format {WIRE_FORMAT}: {error}") from error


async def read_frame(reader: asyncio.StreamReader) -> list[Message]:
    """Raises ConnectionError, EOFError and ValueError."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame has {length} bytes; accepted: up to {FRAME_BYTES_MAX}")
    return decode_frame(await reader.readexactly(length))
