"""Reads how far a member's log goes from its write-ahead log, without etcd: the member may not serve.

Format (etcd's ``wal`` package, 3.x): segments ``<sequence>-<index>.wal`` hold frames, each an 8-byte
little-endian length (top byte: sign bit and padding), then a protobuf record of type, checksum and data. Zeros
end a segment. Data is looked at only as far as its leading numbers, so that values are not read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from rebalance.core.records import LogPosition

_LENGTH = struct.Struct("<Q")
_HEAD_BYTES = 64
"""More than the numbers at the start of a record and of the entry in it take."""
_ENTRY, _STATE, _SNAPSHOT = 2, 3, 5
_VARINT, _BYTES = 0, 2


def read_log_position(directory: Path, *, orderly: bool) -> LogPosition | None:
    """``directory`` is the member's ``wal`` folder; None when it holds no log. Blocks, for as long as it takes
    to walk over the frames. A log that is being written is read up to what has reached the file."""
    committed = last = 0
    found = False
    for segment in sorted(directory.glob("*.wal")):
        for kind, numbers in _records(segment):
            found = True
            if kind == _ENTRY:
                # An entry that replaces a later one shortens the log.
                last = numbers.get(3, last)
            elif kind == _STATE:
                committed = numbers.get(3, committed)
            elif kind == _SNAPSHOT:
                committed, last = max(committed, numbers.get(1, 0)), max(last, numbers.get(1, 0))
    return LogPosition(committed, max(last, committed), orderly) if found else None


def _records(segment: Path) -> Iterator[tuple[int, dict[int, int]]]:
    """Type and leading numbers, by field, of each record."""
    if not segment.stat().st_size:
        return
    with segment.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at, size = 0, len(content)
        while at + _LENGTH.size <= size:
            (length,) = _LENGTH.unpack_from(content, at)
            if length == 0:
                return
            at += _LENGTH.size
            record_bytes = length & ((1 << 56) - 1)
            padding = (length >> 56) & 7 if length >> 63 else 0
            if at + record_bytes > size:
                return  # a frame that was cut off by a crash
            head = content[at : at + min(record_bytes, _HEAD_BYTES)]
            fields, rest = _leading_numbers(head)
            yield fields.get(1, 0), _leading_numbers(rest)[0]
            at += record_bytes + padding


def _leading_numbers(data: bytes) -> tuple[dict[int, int], bytes]:
    """The number fields at the start of a protobuf message, and the first field of bytes after them."""
    numbers: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            return numbers, data[at : at + value]
        if tag & 7 != _VARINT:
            break
        numbers[tag >> 3] = value
    return numbers, b""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at`` and where the next field begins; what is cut off counts as far as it goes."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at
