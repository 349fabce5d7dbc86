"""One attempt of a write or a get at one store server, the connections for it, and their messages.

The few messages that clients send and get are of wire format 1. A frame is its length (4 bytes, big-endian),
then a msgpack array of [tag, message]; a message is a map of its fields by name. Fields that are not here are
skipped, or have the server's defaults. Tests bind it to the server's codec
(tests/data/store_client_golden.tsv).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from struct import Struct
from urllib.parse import unquote, urlsplit

import msgspec

from zonekeeper_client.errors import (
    ConditionFailedError,
    OperationAbandonedError,
    ProblemDocument,
    RefusedByServerError,
)
from zonekeeper_client.routing_maps import Partition
from zonekeeper_client.tls import ShownCertificate
from zonekeeper_client.writes import AttemptFailedError, Row, Write, Written

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


SCHEME = "store"
UNHEARD_MS = 5_000
"""A connection whose bytes the other side does not acknowledge for so long is lost."""
DONE, UNKNOWN, CONFLICT = "DONE", "UNKNOWN", "CONFLICT"
FINAL = {
    "CONFLICT": "CONFLICT",
    "TOO_OLD": "TOO_OLD",
    "NO_ROOM": "PARTITION_FULL",
    "TOO_LARGE": "INVALID_REQUEST",
    "RESTING": "ZONE_DEACTIVATED",
    "LOST": "PARTITION_LOST",
}
"""Answers after which nothing was done, and the same request would be refused again; with the names that the
API has for them."""


class StoreServers:
    """An ``Engine``. ``lists``: says of a URL that a routing map has it."""

    attempt_limits_s = (1.0, 2.0, 4.0)
    """A server that is alive answers, or holds the request until an exchange is over."""

    def __init__(self, lists: Callable[[str], bool], certificate: ShownCertificate | None) -> None:
        self._lists = lists
        self._certificate = certificate
        self._connections: dict[str, StoreConnection] = {}

    async def close(self) -> None:
        await asyncio.gather(*(connection.closed() for connection in self._connections.values()))

    async def put(
        self, url: str, partition: Partition, generation: int | None, write: Write, limit_s: float
    ) -> Written:
        key, value = write.key.encode(), None if write.value is None else write.value.encode()
        deadline = asyncio.get_running_loop().time() + limit_s
        reads: tuple[KeyRead, ...] = ()
        if write.is_conditional:
            reads = (KeyRead(key, await self._wanted(url, partition, write, limit_s)),)
        left_s = max(deadline - asyncio.get_running_loop().time(), 0.0)
        change, left_ms = KeyChange(key, value), _milliseconds(left_s)
        place = partition.zone_id, partition.number
        request = WriteRequest(0, write.operation, *place, (change,), reads, left_ms, write.abandons)
        answer = await self._ask(url, request, left_s)
        if answer.code == DONE:
            return Written(answer.position[1] if answer.position is not None else 0, answer.repeated)
        if answer.abandoned:
            raise OperationAbandonedError(f"partition {partition}: {answer.detail}")
        if answer.code == CONFLICT and write.is_conditional:
            why = (
                "exists" if write.if_absent else f"is not at revision {write.if_revision}, or is being written"
            )
            raise ConditionFailedError(f"partition {partition}: the key {why}", wants_absence=write.if_absent)
        raise _failure(partition, answer)

    async def get(
        self, url: str, partition: Partition, generation: int | None, key: str, limit_s: float
    ) -> Row:
        answer = await self._read(url, partition, key, limit_s)
        revision = answer.position[1] if answer.position is not None and answer.value is not None else 0
        return Row(answer.value, revision)

    async def _wanted(self, url: str, partition: Partition, write: Write, limit_s: float) -> Position:
        """The position at which the row must be. A row that has another revision now may have it by this very
        write, so that the primary is asked all the same, for a position that no row has."""
        if write.if_revision is None:
            return NO_ROW
        row = await self._read(url, partition, write.key, limit_s)
        is_at = row.value is not None and row.position is not None and row.position[1] == write.if_revision
        return row.position if is_at and row.position is not None else (0, write.if_revision)

    async def _read(self, url: str, partition: Partition, key: str, limit_s: float) -> StoreAnswer:
        place = partition.zone_id, partition.number
        answer = await self._ask(url, ReadRequest(0, *place, key.encode(), _milliseconds(limit_s)), limit_s)
        if answer.code != DONE:
            raise _failure(partition, answer)
        return answer

    async def _ask(self, url: str, request: ReadRequest | WriteRequest, limit_s: float) -> StoreAnswer:
        if url not in self._connections:
            for other in list(self._connections):
                if not self._lists(other):
                    self._connections.pop(other).close()
            self._connections[url] = StoreConnection(url, self._certificate)
        return await self._connections[url].ask(request, limit_s)


class StoreConnection:
    """Dials when it is first asked, and again after it was lost; answers come in any order. ``url`` names a
    server's incarnation: another one that answers there is not asked anything."""

    def __init__(self, url: str, certificate: ShownCertificate | None) -> None:
        """Raises AttemptFailedError."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.hostname or not parts.port:
            raise AttemptFailedError(
                f"a store server is at {SCHEME}://HOST:PORT/NAME/INCARNATION, not at {url}"
            )
        self._address = parts.hostname, parts.port
        self._incarnation = unquote(parts.path.rpartition("/")[2])
        self._certificate = certificate
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[StoreAnswer]] = {}
        self._dialling = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def ask(self, request: ReadRequest | WriteRequest, limit_s: float) -> StoreAnswer:
        """``request`` gets a number of this connection. Raises AttemptFailedError."""
        was_sent = False
        request.request = next(self._numbers)
        answer: asyncio.Future[StoreAnswer] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit_s):
                async with self._dialling:
                    writer = self._writer or await self._dial()
                self._waiting[request.request] = answer
                was_sent = True
                writer.write(encode_frame(request))
                return await answer
        except TimeoutError:
            message = f"no answer within {limit_s:.3g} s"
            raise AttemptFailedError(message, may_be_done=was_sent) from None
        except (OSError, EOFError, ValueError) as error:
            raise AttemptFailedError(str(error) or repr(error), may_be_done=was_sent) from error
        finally:
            self._waiting.pop(request.request, None)

    def close(self) -> None:
        """Close the connection; requests that await an answer fail."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def closed(self) -> None:
        self.close()
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    async def _dial(self) -> asyncio.StreamWriter:
        """Raises OSError, EOFError and ValueError."""
        context = None if self._certificate is None else self._certificate.context()
        reader, writer = await asyncio.open_connection(*self._address, ssl=context)
        try:
            _give_up_on_silence(writer)
            writer.write(encode_frame(Hello()))
            first, *others = await read_frame(reader)
            if isinstance(first, Refused):
                raise ConnectionError(f"{first.code}: accepted: {first.accepted}")
            if not isinstance(first, Hello) or self._incarnation not in ("", first.incarnation):
                raise ConnectionError("another server, or another incarnation of it, answers there")
        except BaseException:
            writer.transport.abort()
            raise
        self._take(others)
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader, writer))
        return writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reason = "the connection was lost"
        try:
            with suppress(OSError, EOFError, ValueError):
                while (refused := self._take(await read_frame(reader))) is None:
                    pass
                reason = f"{refused.code}: accepted: {refused.accepted}"
        finally:
            writer.transport.abort()
            self._writer = None
            waiting, self._waiting = self._waiting, {}
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(reason))

    def _take(self, messages: list[Message]) -> Refused | None:
        """Hand answers to their requests; the message by which the other side ends the connection; None: there
        is none."""
        for message in messages:
            if isinstance(message, StoreAnswer):
                answer = self._waiting.pop(message.request, None)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            elif isinstance(message, Refused):
                return message
        return None


def _give_up_on_silence(writer: asyncio.StreamWriter) -> None:
    own_socket = writer.get_extra_info("socket")
    own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:  # Linux has it
        own_socket.setsockopt(socket.IPPROTO_TCP, option, UNHEARD_MS)


def _failure(partition: Partition, answer: StoreAnswer) -> AttemptFailedError | RefusedByServerError:
    message = f"partition {partition}: {answer.code}: {answer.detail}"
    if answer.code in FINAL:
        return RefusedByServerError(ProblemDocument(0, FINAL[answer.code], message))
    is_unknown = answer.code == UNKNOWN
    return AttemptFailedError(message, may_be_done=is_unknown, is_well=True, leader=answer.primary)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
