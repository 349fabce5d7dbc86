"""Frames on the Unix socket between an engine and its driver process: a JSON header and an Arrow stream.

::

    frame  = uint32 header bytes | uint64 body bytes | header | body       (integers big-endian)
    header = JSON object with a "kind"; body = one Arrow IPC stream, or nothing

The kinds and who sends them are in ``tech-notes/driver-protocol.md``. Both ends are on one machine and of one
version, so there is no version field; only the socket's owner can connect to it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

_PREFIX = struct.Struct(">IQ")
HEADER_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 1 << 34


class FrameKind(Enum):
    """Engine to driver: WATCH, and the questions PLACE to VALIDATE. Driver to engine: the rest."""

    WATCH = "watch"
    PLACE = "place"
    WHAT_IF = "what-if"
    PLAN = "plan"
    SKEW = "skew"
    VALIDATE = "validate"
    STATE = "state"
    PROGRESS = "progress"
    RESULT = "result"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Frame:
    kind: FrameKind
    fields: dict[str, Any] = field(default_factory=dict)
    body: pa.Table | None = None


class FrameError(ConnectionError):
    """The other end sent something that is no frame of this protocol."""


def encode(frame: Frame) -> tuple[bytes, memoryview]:
    """Prefix with header, and body. The body is not copied into the first part: it may be large."""
    header = json.dumps({"kind": frame.kind.value, **frame.fields}).encode()
    body = memoryview(b"")
    if frame.body is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, frame.body.schema) as writer:
            writer.write_table(frame.body)
        body = memoryview(sink.getvalue())
    return _PREFIX.pack(len(header), body.nbytes) + header, body


def send(connection: socket.socket, frame: Frame) -> None:
    """Send on a blocking socket. Raises OSError when the other end is gone."""
    head, body = encode(frame)
    connection.sendall(head)
    if body.nbytes:
        connection.sendall(body)


def receive(connection: socket.socket) -> Frame | None:
    """The next frame from a blocking socket; None at its end. Raises OSError, FrameError."""
    reading = _reading()
    try:
        view = next(reading)
        while True:
            view = reading.send(connection.recv_into(view))
    except StopIteration as end:
        frame: Frame | None = end.value
        return frame


async def send_async(connection: socket.socket, frame: Frame) -> None:
    """Send on a non-blocking socket of the running loop. Raises OSError when the other end is gone."""
    loop = asyncio.get_running_loop()
    head, body = encode(frame)
    await loop.sock_sendall(connection, head)
    if body.nbytes:
        await loop.sock_sendall(connection, body)


async def receive_async(connection: socket.socket) -> Frame | None:
    """The next frame from a non-blocking socket; None at its end. Bodies are received in place, with no step
    that holds the loop for more than one read of the socket. Raises OSError, FrameError."""
    loop, reading = asyncio.get_running_loop(), _reading()
    try:
        view = next(reading)
        while True:
            view = reading.send(await loop.sock_recv_into(connection, view))
    except StopIteration as end:
        frame: Frame | None = end.value
        return frame


def _reading() -> Generator[memoryview, int, Frame | None]:
    """Yields where the next bytes go, is sent how many came, and returns the frame; None: the end came before
    one began. Raises FrameError."""
    prefix = yield from _filled(_PREFIX.size, may_end=True)
    if prefix is None:
        return None
    header_bytes, body_bytes = _PREFIX.unpack(prefix)
    if header_bytes > HEADER_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise FrameError(f"a frame of {header_bytes} + {body_bytes} bytes is over the limits")
    header = yield from _filled(header_bytes)
    body = yield from _filled(body_bytes)
    assert header is not None, "only the prefix may be missing"
    assert body is not None, "only the prefix may be missing"
    return _decode(header, body)


def _filled(size: int, *, may_end: bool = False) -> Generator[memoryview, int, memoryview | None]:
    view = np.empty(size, dtype=np.uint8).data
    done = 0
    while done < size:
        count = yield view[done:]
        if count == 0 and may_end and done == 0:
            return None
        if count == 0:
            raise FrameError("the connection ended inside a frame")
        done += count
    return view


def _decode(header: memoryview, body: memoryview) -> Frame:
    fields = json.loads(bytes(header))
    kind = FrameKind(fields.pop("kind"))
    table = None
    if body.nbytes:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
    return Frame(kind, fields, table)
