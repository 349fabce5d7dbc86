"""The changes of a transaction (``disk_changes``), carried out in one transaction of LMDB.

Invariant: the position of every id is that of a record in the log, or a key of ``bare_ids``. So what is older
than a position is found without a look at all ids. Entries of ``bare_ids`` whose id has a later position by
now, or is gone, mean nothing.

The reader sees a store server's disk as of one transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import lmdb

from rebalance.core.partition_maps.partition_map import CopyState, StorePosition
from rebalance.store.core.disk_changes import (
    ClearBatch,
    CutLog,
    DiskChange,
    DropCopy,
    DropTail,
    DropTombstones,
    KeepHead,
    KeepMark,
    KeepRecords,
    KeepRows,
)
from rebalance.store.core.log_records import (
    CopyHead,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)
from rebalance.store.shell.disk_format import (
    POSITION_BYTES,
    bare_id_of,
    bare_id_value,
    encoded,
    head_of,
    id_of,
    id_value,
    partition_of,
    partition_prefix,
    position_after,
    position_bytes,
    position_of,
    record_of,
    row_key,
    row_of,
    row_position,
    row_value,
)

DATABASES = ("heads", "log", "rows", "tombstones", "ids", "bare_ids", "marks", "about")
OF_COPIES = ("log", "rows", "tombstones", "ids", "bare_ids", "heads")

Databases = Mapping[str, Any]
"""Handles by name."""


def carry_out(txn: lmdb.Transaction[bytes], databases: Databases, changes: Iterable[DiskChange]) -> None:
    """Carry out changes in order. Raises lmdb.Error, and the transaction must be aborted."""
    for change in changes:
        match change:
            case KeepMark(name, value):
                txn.put(name.encode(), value, db=databases["marks"])
            case _:
                _CopyChanges(txn, databases, partition_prefix(change.partition)).carry_out(change)


class _CopyChanges:
    """Changes of one copy; ``prefix`` begins all its keys."""

    def __init__(self, txn: lmdb.Transaction[bytes], databases: Databases, prefix: bytes) -> None:
        self._txn = txn
        self._databases = databases
        self._prefix = prefix

    def carry_out(self, change: DiskChange) -> None:
        match change:
            case KeepHead(_, head):
                self._put("heads", b"", encoded(head))
            case KeepRecords(_, records, tombstones):
                for record in records:
                    self._put("log", position_bytes(record.position), encoded(record))
                    self._keep_id(StoredWriteId(record.write, record.position, record.time_ms))
                    for written in record.changes:
                        self._keep_row(StoredRow(written.key, written.value, record.position), tombstones)
            case KeepRows(_, rows, ids):
                for row in rows:
                    self._keep_row(row)
                for entry in ids:
                    if self._keep_id(entry):
                        bare = bare_id_value(entry.write, entry.time_ms)
                        self._put("bare_ids", position_bytes(entry.position), bare)
            case DropTail(_, above, until, keys):
                self._drop_tail(above, until, keys)
            case ClearBatch(_, until, limit_bytes):
                self._clear(until, limit_bytes)
            case CutLog(_, until, ids_before_ms):
                self._cut_log(until, ids_before_ms)
            case DropTombstones(_, until):
                self._drop_tombstones(until)
            case DropCopy():
                for name in OF_COPIES:
                    for cursor in self._entries(name):
                        cursor.delete()

    def _get(self, database: str, key: bytes) -> bytes | None:
        return self._txn.get(self._prefix + key, db=self._databases[database])

    def _put(self, database: str, key: bytes, value: bytes) -> None:
        self._txn.put(self._prefix + key, value, db=self._databases[database])

    def _delete(self, database: str, key: bytes) -> None:
        self._txn.delete(self._prefix + key, db=self._databases[database])

    def _keep_row(self, row: StoredRow, tombstones: bool = True) -> None:
        key = row_key(row.key)
        stored = self._get("rows", key)
        if stored is not None and row_position(stored) >= row.position:
            return
        if row.value is None and tombstones:
            self._put("rows", key, row_value(row))
            self._put("tombstones", key, b"")
            return
        if row.value is None:
            self._delete("rows", key)
        else:
            self._put("rows", key, row_value(row))
        if stored is not None:
            self._delete("tombstones", key)

    def _keep_id(self, entry: StoredWriteId) -> bool:
        """Decide whether the id is stored: one with an equal or later position stays."""
        stored = self._stored_id(entry.write)
        if stored is not None and stored.position >= entry.position:
            return False
        self._put("ids", entry.write.encode(), id_value(entry))
        return True

    def _stored_id(self, write: WriteId) -> StoredWriteId | None:
        key = write.encode()
        value = self._get("ids", key)
        return None if value is None else id_of(self._prefix + key, value)

    def _delete_id_at(self, write: WriteId, position: StorePosition) -> None:
        stored = self._stored_id(write)
        if stored is not None and stored.position == position:
            self._delete("ids", write.encode())

    def _drop_tail(self, above: StorePosition, until: StorePosition, keys: tuple[bytes, ...]) -> None:
        for cursor in self._entries("log", until, position_after(above)):
            record = record_of(cursor.value())
            self._delete_id_at(record.write, record.position)
            cursor.delete()
        for key in map(row_key, keys):
            row = self._get("rows", key)
            if row is not None and above < row_position(row) <= until:
                self._delete("rows", key)
                self._delete("tombstones", key)

    def _clear(self, until: StorePosition, limit_bytes: int) -> None:
        """Records with their ids, then rows, then ids without a record; at least one of them."""
        left = limit_bytes
        for cursor in self._entries("log", until):
            if left <= 0:
                return
            record = record_of(cursor.value())
            left -= record.size
            self._delete_id_at(record.write, record.position)
            cursor.delete()
        for cursor in self._entries("rows"):
            if left <= 0:
                return
            if row_position(cursor.value()) <= until:
                row = row_of(cursor.key(), cursor.value())
                left -= row.size
                self._delete("tombstones", row_key(row.key))
                cursor.delete()
        for cursor in self._entries("bare_ids", until):
            if left <= 0:
                return
            write, _ = bare_id_of(cursor.value())
            left -= len(write)
            self._delete_id_at(write, position_of(cursor.key()))
            cursor.delete()

    def _cut_log(self, until: StorePosition, ids_before_ms: int) -> None:
        """Ids expire in the order of their positions, as the times of a log never go back."""
        for cursor in self._entries("bare_ids", until):
            write, time_ms = bare_id_of(cursor.value())
            if time_ms >= ids_before_ms:
                break
            self._delete_id_at(write, position_of(cursor.key()))
            cursor.delete()
        for cursor in self._entries("log", until):
            record = record_of(cursor.value())
            if record.time_ms < ids_before_ms:
                self._delete_id_at(record.write, record.position)
            else:
                bare = bare_id_value(record.write, record.time_ms)
                self._put("bare_ids", position_bytes(record.position), bare)
            cursor.delete()

    def _drop_tombstones(self, until: StorePosition) -> None:
        for cursor in self._entries("tombstones"):
            row = self._txn.get(cursor.key(), db=self._databases["rows"])
            if row is not None and row_position(row) <= until:
                self._txn.delete(cursor.key(), db=self._databases["rows"])
                cursor.delete()

    def _entries(
        self, database: str, until: StorePosition | None = None, first: bytes = b""
    ) -> Iterator[lmdb.Cursor[bytes]]:
        """The cursor, at each entry of this copy in turn, from ``first`` on; with ``until`` keys are positions,
        up to that one. The entry may be deleted at the cursor, which is at the next one then."""
        with self._txn.cursor(db=self._databases[database]) as cursor:
            there = cursor.set_range(self._prefix + first)
            while there and (key := cursor.key()).startswith(self._prefix):
                if until is not None and position_of(key) > until:
                    return
                yield cursor
                there = cursor.next() if cursor.key() == key else bool(cursor.key())


class StoreDiskError(Exception):
    """Base of what opening a store raises; this class itself: the system refuses it.

    StoreDiskError
    ├── NoStoreError          there is no store in the directory
    ├── StoreFormatError      a later build has written it
    ├── StoreInUseError       another process has it open
    └── StoreDamagedError     what is in it cannot be read
    """


class NoStoreError(StoreDiskError):
    """A missing store, for readers only: a server makes one."""


class StoreFormatError(StoreDiskError):
    """A store of another format; nothing was changed."""


class StoreInUseError(StoreDiskError):
    """Two servers must not write to one store."""


class StoreDamagedError(StoreDiskError):
    """The file is not one of LMDB, its pages contradict each other, or a value is none of ours."""


DAMAGED_PAGES = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.IncompatibleError)
"""LMDB's errors about a file, not about the system, which may give it room, memory or rights again."""
UNREADABLE = (*DAMAGED_PAGES, lmdb.BadTxnError, ValueError, struct.error)
"""Errors while stored bytes are read and decoded. LMDB gives up a transaction that only reads for a damaged
page alone, and may tell of that first."""


def damaged(place: str, error: Exception) -> StoreDamagedError:
    """``place``: the file."""
    return StoreDamagedError(f"{place} cannot be read: {type(error).__name__}: {error}")


Entry = TypeVar("Entry", LogRecord, StoredRow, StoredWriteId)
P = ParamSpec("P")
T = TypeVar("T")


def _reads(read: Callable[Concatenate[LmdbReader, P], T]) -> Callable[Concatenate[LmdbReader, P], T]:
    """Name failures of ``read`` as faults of the file."""

    @wraps(read)
    def reading(self: LmdbReader, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return read(self, *args, **named)
        except UNREADABLE as error:
            raise damaged(self.place, error) from error

    return reading


class LmdbReader:
    """A ``StoreReader``, whose methods raise StoreDamagedError. It sees the transaction that was the last one
    when ``renew`` was called last: a commit that the core has not heard of yet changes no answer. Used by one
    thread, and no other one's."""

    def __init__(self, environment: lmdb.Environment, databases: Databases) -> None:
        self.place = f"{environment.path()}: data.mdb"
        self._environment = environment
        self._databases = databases
        self._txn: lmdb.Transaction[bytes] = environment.begin()

    def renew(self) -> None:
        """Renew the view after each transaction: pages that the old view holds are not used again until
        then."""
        self._txn.abort()
        self._txn = self._environment.begin()

    def close(self) -> None:
        self._txn.abort()

    @_reads
    def heads(self) -> dict[PartitionKey, CopyHead]:
        with self._cursor("heads") as cursor:
            heads = {partition_of(key): head_of(value) for key, value in cursor}
        return {partition: self._with_log(partition, head) for partition, head in heads.items()}

    @_reads
    def partitions(self) -> set[PartitionKey]:
        """Return the partitions of which anything is stored, with a head or without."""
        partitions = set()
        for database in OF_COPIES:
            with self._cursor(database) as cursor:
                there = cursor.first()
                while there:
                    partition = partition_of(cursor.key())
                    partitions.add(partition)
                    there = cursor.set_range(partition_prefix((partition[0], partition[1] + 1)))
        return partitions

    @_reads
    def row(self, partition: PartitionKey, key: bytes) -> StoredRow | None:
        stored = partition_prefix(partition) + row_key(key)
        value = self._get("rows", stored)
        return None if value is None else row_of(stored, value)

    @_reads
    def write_id(self, partition: PartitionKey, write: WriteId) -> StoredWriteId | None:
        stored = partition_prefix(partition) + write.encode()
        value = self._get("ids", stored)
        return None if value is None else id_of(stored, value)

    @_reads
    def records(self, partition: PartitionKey, after: StorePosition, limit_bytes: int) -> tuple[LogRecord, ...]:
        first = position_after(after)
        return self._batch("log", partition, first, lambda _, value: record_of(value), limit_bytes)

    @_reads
    def rows(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredRow, ...]:
        """Read rows by key; those that are longer than ``WHOLE_KEY_BYTES_MAX`` and begin alike are in an order
        of their own."""
        return self._batch("rows", partition, _next_key(row_key(after)), row_of, limit_bytes)

    @_reads
    def ids(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredWriteId, ...]:
        return self._batch("ids", partition, _next_key(after), id_of, limit_bytes)

    @_reads
    def has_older(self, partition: PartitionKey, until: StorePosition) -> bool:
        for key, _ in self._entries("log", partition):
            return position_of(key) <= until or self._has_older_rows(partition, until)
        return self._has_older_rows(partition, until)

    @_reads
    def mark(self, name: str) -> bytes | None:
        return self._get("marks", name.encode())

    def _with_log(self, partition: PartitionKey, head: CopyHead) -> CopyHead:
        """An owner's head is stored less often than its records."""
        if head.state is not CopyState.OWNING:
            return head
        last = self._last_position(partition)
        if last is None or last <= head.tail:
            return head
        if head.epochs and head.epochs[-1].epoch == last.epoch:
            return replace(head, tail=last)
        first = position_after(head.tail)
        return head.appended(record_of(value) for _, value in self._entries("log", partition, first))

    def _last_position(self, partition: PartitionKey) -> StorePosition | None:
        """Return the last position of the log."""
        prefix = partition_prefix(partition)
        with self._cursor("log") as cursor:
            there = cursor.set_range(prefix + b"\xff" * POSITION_BYTES)
            there = cursor.prev() if there else cursor.last()
            return position_of(cursor.key()) if there and cursor.key().startswith(prefix) else None

    def _has_older_rows(self, partition: PartitionKey, until: StorePosition) -> bool:
        if any(row_position(value) <= until for _, value in self._entries("rows", partition)):
            return True
        for key, value in self._entries("bare_ids", partition):
            position = position_of(key)
            if position > until:
                return False
            stored = self.write_id(partition, bare_id_of(value)[0])
            if stored is not None and stored.position == position:
                return True
        return False

    def _get(self, database: str, key: bytes) -> bytes | None:
        return self._txn.get(key, db=self._databases[database])

    def _cursor(self, database: str) -> lmdb.Cursor[bytes]:
        return self._txn.cursor(db=self._databases[database])

    def _entries(
        self, database: str, partition: PartitionKey, first: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys with the partition, and values, from ``first`` on."""
        prefix = partition_prefix(partition)
        with self._cursor(database) as cursor:
            there = cursor.set_range(prefix + first)
            while there and cursor.key().startswith(prefix):
                yield cursor.item()
                there = cursor.next()

    def _batch(
        self,
        database: str,
        partition: PartitionKey,
        first: bytes,
        read: Callable[[bytes, bytes], Entry],
        limit_bytes: int,
    ) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        left = limit_bytes
        for key, value in self._entries(database, partition, first):
            entry = read(key, value)
            left -= len(entry.write) if isinstance(entry, StoredWriteId) else entry.size
            if entries and left < 0:
                break
            entries.append(entry)
        return tuple(entries)


def _next_key(key: bytes) -> bytes:
    """The first key above it; all, where it is empty."""
    return key + b"\0" if key else key
