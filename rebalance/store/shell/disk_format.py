"""Layout of a store server's values in LMDB: the bytes of keys and values, format 1.

Every key begins with zone (8 bytes) and partition (4), so that a copy's entries lie together.

| Database | Key, after the partition | Value |
|---|---|---|
| heads | | the head |
| log | position | the record |
| rows | the row's key | position, kind, value |
| tombstones | the row's key | nothing: which rows are tombstones |
| ids | the id | position, time |
| bare_ids | position | time, id: ids whose record is not in the log (it was cut off, or never here) |
| marks | (no partition) the name | the value |
| about | (no partition) ``format`` | the format's number as text |
"""

from __future__ import annotations

import hashlib
from struct import Struct

import msgspec

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.store.core.log_records import (
    CopyHead,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)

DISK_FORMAT = 1
"""A store with a higher one is not opened."""

PARTITION_BYTES = 12
POSITION_BYTES = 16
LMDB_KEY_BYTES_MAX = 511
HASH_BYTES = 32
WHOLE_KEY_BYTES_MAX = LMDB_KEY_BYTES_MAX - PARTITION_BYTES - HASH_BYTES
"""A longer key is stored as so many bytes of it and its hash, which is longer than any key stored whole."""

_PARTITION = Struct(">QI")
_POSITION = Struct(">QQ")
_ROW = Struct(">QQB")
_ID = Struct(">QQQ")
_BARE_ID = Struct(">Q")
_LENGTH = Struct(">I")

VALUE, TOMBSTONE, LONG_KEY = 0, 1, 2

_encoder = msgspec.msgpack.Encoder()
_head = msgspec.msgpack.Decoder(CopyHead)
_record = msgspec.msgpack.Decoder(LogRecord)


def partition_prefix(partition: PartitionKey) -> bytes:
    return _PARTITION.pack(*partition)


def partition_of(key: bytes) -> PartitionKey:
    zone, number = _PARTITION.unpack_from(key)
    return ZoneId(zone), number


def position_bytes(position: StorePosition) -> bytes:
    """Encode a position so that bytes are in the order of positions."""
    return _POSITION.pack(*position)


def position_after(position: StorePosition) -> bytes:
    """The lowest that is above it."""
    return _POSITION.pack(position.epoch, position.counter + 1)


def position_of(key: bytes) -> StorePosition:
    """Decode the position in a key of ``log`` or ``bare_ids``."""
    return StorePosition(*_POSITION.unpack_from(key, PARTITION_BYTES))


def row_key(key: bytes) -> bytes:
    """Encode a key in the order of keys, but for those that begin with the same ``WHOLE_KEY_BYTES_MAX``
    bytes."""
    if len(key) <= WHOLE_KEY_BYTES_MAX:
        return key
    return key[:WHOLE_KEY_BYTES_MAX] + hashlib.sha256(key).digest()


def row_value(row: StoredRow) -> bytes:
    kind = VALUE if row.value is not None else TOMBSTONE
    rest = row.key[WHOLE_KEY_BYTES_MAX:]
    if rest:
        return b"".join(
            (_ROW.pack(*row.position, kind | LONG_KEY), _LENGTH.pack(len(rest)), rest, row.value or b"")
        )
    return _ROW.pack(*row.position, kind) + (row.value or b"")


def row_of(stored_key: bytes, value: bytes) -> StoredRow:
    """``stored_key``: with the partition."""
    epoch, counter, kind = _ROW.unpack_from(value)
    start, key = _ROW.size, stored_key[PARTITION_BYTES:]
    if kind & LONG_KEY:
        (length,) = _LENGTH.unpack_from(value, start)
        start += _LENGTH.size + length
        key = key[:WHOLE_KEY_BYTES_MAX] + value[start - length : start]
    return StoredRow(key, None if kind & TOMBSTONE else value[start:], StorePosition(epoch, counter))


def row_position(value: bytes) -> StorePosition:
    """Decode the position of a row's value, which may be large, without its other parts."""
    return StorePosition(*_POSITION.unpack_from(value))


def id_value(entry: StoredWriteId) -> bytes:
    return _ID.pack(*entry.position, entry.time_ms)


def id_of(stored_key: bytes, value: bytes) -> StoredWriteId:
    """``stored_key``: with the partition."""
    epoch, counter, time_ms = _ID.unpack(value)
    return StoredWriteId(WriteId(stored_key[PARTITION_BYTES:].decode()), StorePosition(epoch, counter), time_ms)


def bare_id_value(write: WriteId, time_ms: int) -> bytes:
    return _BARE_ID.pack(time_ms) + write.encode()


def bare_id_of(value: bytes) -> tuple[WriteId, int]:
    """The id and its time."""
    return WriteId(value[_BARE_ID.size :].decode()), _BARE_ID.unpack_from(value)[0]


def encoded(value: CopyHead | LogRecord) -> bytes:
    """msgpack, fields by name: fields that a later build adds are skipped by this one."""
    return _encoder.encode(value)


def head_of(value: bytes) -> CopyHead:
    return _head.decode(value)


def record_of(value: bytes) -> LogRecord:
    return _record.decode(value)
