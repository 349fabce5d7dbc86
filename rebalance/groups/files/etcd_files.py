"""Files of a member read without etcd: the revision of its store, and how far its log goes.

The member may not serve, and as long as its process lives no tool of etcd's can open its files.

Store (bbolt, page size as the file says): two meta pages, the newer valid one counts; a root tree of buckets,
each a tree of its own. Bucket ``key`` is ordered by revision, so its last key is the newest one; bucket
``meta`` holds the log index of the last entry that changed data, and how far the history is compacted.

Log (etcd's ``wal`` package, 3.x): segments ``<sequence>-<index>.wal`` hold frames, each an 8-byte
little-endian length (top byte: sign bit and padding), then a protobuf record of type, checksum and data.
Zeros end a segment. Data is looked at only as far as its leading numbers, so that values are not read.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aetcd import rpc
from google.protobuf.message import DecodeError

from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.calls.etcd_api import IDENTITY_KEY

_PAGE = struct.Struct("<QHHI")
_META = struct.Struct("<IIIIQQQQQQ")
_LEAF = struct.Struct("<IIII")
_BRANCH = struct.Struct("<IIQ")
_BUCKET = struct.Struct("<QQ")
_NUMBER = struct.Struct(">Q")
_MAGIC = 0xED0CDAED
_BRANCH_FLAG, _LEAF_FLAG = 0x01, 0x02
_PAGE_SIZES = tuple(1 << shift for shift in range(10, 17))
_DEPTH_MAX = 64
_READS_MAX = 5


class StoreNotReadableError(ValueError):
    """The file is no store of etcd's, or is being written all the time."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """``revision``: of the newest change that the file has, 1 for a store that was never written to;
    ``index``: of the log entry that made it, 0 where the file does not say."""

    revision: int
    index: int


def read_learners(path: Path) -> frozenset[str]:
    """Peer URLs of the members that the store lists as learners. The process that wrote it must be stopped.
    Raises StoreNotReadableError, OSError."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        meta = _newest_meta(content)
        try:
            root = _Tree(content, meta.page_size, meta.root * meta.page_size)
            buckets = dict(root.items())
            members = [json.loads(value) for _, value in root.bucket(buckets[b"members"]).items()]
            return frozenset(url for member in members if member.get("isLearner") for url in member["peerURLs"])
        except (struct.error, IndexError, KeyError, TypeError, ValueError) as error:
            raise StoreNotReadableError(f"{path} is damaged") from error


def read_store_file(path: Path) -> StoreFile | None:
    """None when there is no file. Blocks for some page reads, whatever the size. A process may have the file
    open: it never changes a page that the newest meta page leads to, so the answer counts when that page is
    the same afterwards. Raises StoreNotReadableError, OSError."""
    if not path.is_file() or not path.stat().st_size:
        return None
    for _ in range(_READS_MAX):
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            before = _newest_meta(content)
            try:
                store = _read(content, before)
            except (struct.error, IndexError, StoreNotReadableError):
                if _newest_meta(content) == before:
                    raise StoreNotReadableError(f"{path} is damaged") from None
                continue
            if _newest_meta(content) == before:
                return store
    raise StoreNotReadableError(f"{path} is being written all the time")


@dataclass(frozen=True, slots=True)
class _Meta:
    transaction: int
    page_size: int
    root: int


def _newest_meta(content: mmap.mmap) -> _Meta:
    metas = {meta for size in (0, *_PAGE_SIZES) if (meta := _meta(content, size)) is not None}
    if not metas:
        raise StoreNotReadableError("no valid meta page")
    return max(metas, key=lambda meta: meta.transaction)


def _meta(content: mmap.mmap, at: int) -> _Meta | None:
    """The second meta page is one page behind the first, and each says how large pages are."""
    start = at + _PAGE.size
    if start + _META.size > len(content):
        return None
    magic, _, page_size, _, root, _, _, _, transaction, checksum = _META.unpack_from(content, start)
    if magic != _MAGIC or at not in (0, page_size):
        return None
    if checksum != _fnv1a(content[start : start + _META.size - 8]):
        return None
    return _Meta(transaction, page_size, root)


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _read(content: mmap.mmap, meta: _Meta) -> StoreFile:
    root = _Tree(content, meta.page_size, meta.root * meta.page_size)
    buckets = dict(root.items())
    facts = dict(root.bucket(buckets[b"meta"]).items()) if b"meta" in buckets else {}
    newest = root.bucket(buckets[b"key"]).last_key() if b"key" in buckets else b""
    # What a compaction has removed may have been the newest change.
    marks = (newest, facts.get(b"scheduledCompactRev", b""), facts.get(b"finishedCompactRev", b""))
    revision = max([1, *(_NUMBER.unpack_from(mark)[0] for mark in marks if mark)])
    index = facts.get(b"consistent_index", b"")
    return StoreFile(revision, _NUMBER.unpack(index)[0] if index else 0)


@dataclass(frozen=True, slots=True)
class _Tree:
    """``at``: where its root page begins."""

    content: mmap.mmap | bytes
    page_size: int
    at: int

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._items(self.at, 0)

    def last_key(self) -> bytes:
        """Empty for an empty tree."""
        at = self.at
        for _ in range(_DEPTH_MAX):
            flags, count = self._page(at)
            if not count:
                return b""
            if flags & _LEAF_FLAG:
                return self._leaf(at, count - 1)[0]
            at = self._child(at, count - 1)
        raise StoreNotReadableError("a tree without an end")

    def bucket(self, value: bytes) -> _Tree:
        """A small bucket is a page within its value."""
        (root, _sequence) = _BUCKET.unpack_from(value)
        if root:
            return _Tree(self.content, self.page_size, root * self.page_size)
        return _Tree(value, self.page_size, _BUCKET.size)

    def _items(self, at: int, depth: int) -> Iterator[tuple[bytes, bytes]]:
        flags, count = self._page(at)
        if depth > _DEPTH_MAX:
            raise StoreNotReadableError("a tree without an end")
        for index in range(count):
            if flags & _LEAF_FLAG:
                yield self._leaf(at, index)
            else:
                yield from self._items(self._child(at, index), depth + 1)

    def _page(self, at: int) -> tuple[int, int]:
        _number, flags, count, _overflow = _PAGE.unpack_from(self.content, at)
        if not flags & (_BRANCH_FLAG | _LEAF_FLAG):
            raise StoreNotReadableError("a page that is of no tree")
        return flags, count

    def _leaf(self, at: int, index: int) -> tuple[bytes, bytes]:
        start = at + _PAGE.size + index * _LEAF.size
        _flags, position, key_bytes, value_bytes = _LEAF.unpack_from(self.content, start)
        key = start + position
        value = key + key_bytes
        return bytes(self.content[key:value]), bytes(self.content[value : value + value_bytes])

    def _child(self, at: int, index: int) -> int:
        start = at + _PAGE.size + index * _BRANCH.size
        _position, _key_bytes, page = _BRANCH.unpack_from(self.content, start)
        return int(page) * self.page_size


_LENGTH = struct.Struct("<Q")
_HEAD_BYTES = 64
"""More than the numbers at the start of a record and of the entry in it take."""
_ENTRY, _STATE, _SNAPSHOT = 2, 3, 5
_VARINT, _BYTES = 0, 2
_PUT, _DELETE, _TXN, _LEASE_END = 4, 5, 6, 9
"""Fields of a request in an entry, of those that change data."""
_HEADER = 100
"""Field of a request that says who asked. It may come before the request itself."""
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


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message by number, up to the first one that is neither a number nor bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            yield tag >> 3, data[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            yield tag >> 3, value
        else:
            return


def _leading_numbers(data: bytes) -> tuple[dict[int, int], bytes]:
    """The number fields at the start of a protobuf message, and the first field of bytes after them."""
    numbers: dict[int, int] = {}
    for field, value in _fields(data):
        if isinstance(value, bytes):
            return numbers, value
        numbers[field] = value
    return numbers, b""


def _first_bytes(data: bytes) -> tuple[int, bytes]:
    """The number and the content of a request's first field of bytes, behind its header; (0, empty) without."""
    for field, value in _fields(data):
        if isinstance(value, bytes) and field != _HEADER:
            return field, value
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
