"""Messages as bytes, wire format 1.

A frame is its length (4 bytes, big-endian), then a msgpack array of [tag, message]. A message is a map of its
fields by name: msgspec reads and writes the core's own classes so, which takes a third of the time of shorter
arrays that Python takes apart (tests/bench/bench_store_wire.py). Fields that a later build adds are skipped by
this one, and have their defaults where an earlier one leaves them out. A tag never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any

import msgspec

from rebalance.exchange.core.exchange_messages import (
    FullMessage,
    LatchCount,
    LatchOpen,
    SingleMessage,
    SingleRequest,
)
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
