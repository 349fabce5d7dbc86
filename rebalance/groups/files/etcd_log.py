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

from aetcd import rpc
from google.protobuf.message import DecodeError

from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.calls.etcd_api import IDENTITY_KEY
from rebalance.groups.files.etcd_store_file import StoreFile

_LENGTH = struct.Struct("<Q")
_HEAD_BYTES = 64
"""More than the numbers at the start of a record and of the entry in it take."""
_ENTRY, _STATE, _SNAPSHOT = 2, 3, 5
_VARINT, _BYTES = 0, 2
_PUT, _DELETE, _TXN, _LEASE_END = 4, 5, 6, 9
"""Fields of a request in an entry, of those that change data."""
_HEADER = 100
"""Of a request: who asked. It may come before the request itself."""
_ALL = 1 << 63


def read_log_position(
    directory: Path, *, orderly: bool, store: StoreFile | None = None, replay: bool = True
) -> LogPosition | None:
    """``directory`` is the member's ``wal`` folder; None when it holds no log. Blocks, for as long as it takes
    to walk over the frames. A log that is being written is read up to what has reached the file.

    ``store``: what the member's store has; without it the revision is not known. ``replay``: entries behind it
    are not applied yet, so those up to the commit index that change data are counted. What a guard would refuse
    counts too: the revision may be a little high, and is never low.
    """
    committed = last = 0
    changes: list[int] = []
    has_records = False
    for segment in sorted(directory.glob("*.wal")):
        for kind, numbers, data in _records(segment, store.index if store and replay else _ALL):
            has_records = True
            if kind == _ENTRY:
                # An entry that replaces a later one shortens the log.
                last = numbers.get(3, last)
                while changes and changes[-1] >= last:
                    changes.pop()
                if store is not None and _changes_data(data, is_new=store.revision <= 1):
                    changes.append(last)
            elif kind == _STATE:
                committed = numbers.get(3, committed)
            elif kind == _SNAPSHOT:
                committed, last = max(committed, numbers.get(1, 0)), max(last, numbers.get(1, 0))
    if not has_records:
        return None
    revision = store.revision + sum(index <= committed for index in changes) if store is not None else 0
    return LogPosition(committed, max(last, committed), orderly, revision)


def _changes_data(data: bytes, *, is_new: bool) -> bool:
    """``data``: of an entry; empty for one that is no request. Each leader claims the group's identity, and
    only the first one gets it. What a crash has left of an entry, written in part, counts as a change: nobody
    has decided it."""
    field, request = _first_bytes(data)
    if field != _TXN or is_new:
        return field in (_PUT, _DELETE, _TXN, _LEASE_END)
    try:
        compares = rpc.TxnRequest.FromString(request).compare
    except DecodeError:
        return True
    return not any(
        compare.key == IDENTITY_KEY and compare.target == rpc.Compare.CREATE and not compare.create_revision
        for compare in compares
    )


def _records(segment: Path, after: int) -> Iterator[tuple[int, dict[int, int], bytes]]:
    """Type and leading numbers, by field, of each record; the data of entries behind index ``after``."""
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
            kind, numbers, data = fields.get(1, 0), _leading_numbers(rest)[0], b""
            # A change of members is an entry of another type.
            if kind == _ENTRY and numbers.get(3, 0) > after and not numbers.get(1, 0):
                _, entry = _leading_numbers(content[at : at + record_bytes])
                _, data = _leading_numbers(entry)
            yield kind, numbers, data
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


def _first_bytes(data: bytes) -> tuple[int, bytes]:
    """The number and the content of a request's first field of bytes, behind its header; (0, empty) without."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            if tag >> 3 != _HEADER:
                return tag >> 3, data[at : at + value]
            at += value
        elif tag & 7 != _VARINT:
            break
    return 0, b""


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
