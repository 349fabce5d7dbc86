"""Reader of a store server's disk as of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import lmdb

from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.store_positions import StorePosition
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
    head_of,
    id_of,
    partition_of,
    partition_prefix,
    position_after,
    position_of,
    record_of,
    row_key,
    row_of,
    row_position,
)
from rebalance.store.shell.lmdb_changes import OF_COPIES, Databases
from rebalance.store.shell.store_errors import UNREADABLE, damaged

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
