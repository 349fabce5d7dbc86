"""Changes of one disk transaction, and the port through which the core reads what is stored.

A transaction is done whole or not at all, its changes in order. The core has one transaction under way at a
time and collects what comes meanwhile for the next (group commit), so the shell needs no queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.store.core.log_records import (
    CopyHead,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)


@dataclass(frozen=True, slots=True)
class KeepHead:
    """Store or replace the copy's head. First seen, it makes the copy. While the state is OWNING it is not
    stored anew with every record: ``StoreReader.heads`` gives it with the later records of the log
    ``appended``."""

    partition: PartitionKey
    head: CopyHead


@dataclass(frozen=True, slots=True)
class KeepRecords:
    """Add to the log and to the id index; apply each change as ``KeepRows`` does. An id that is there already
    takes the later position. ``tombstones``: a delete leaves one; else it removes the row."""

    partition: PartitionKey
    records: tuple[LogRecord, ...]
    tombstones: bool = False


@dataclass(frozen=True, slots=True)
class KeepRows:
    """Store each row unless one with an equal or later position is there. A tombstone is a row."""

    partition: PartitionKey
    rows: tuple[StoredRow, ...]
    ids: tuple[StoredWriteId, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTail:
    """Remove the log's records above ``above`` and at most ``until``, their ids, and the rows of ``keys`` with
    such a position."""

    partition: PartitionKey
    above: StorePosition
    until: StorePosition
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ClearBatch:
    """Remove up to ``limit_bytes`` of log records, rows and ids whose position is at most ``until``. What is
    left is seen by ``StoreReader.has_older``."""

    partition: PartitionKey
    until: StorePosition
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class CutLog:
    """Remove records up to ``until``, and ids up to there that are older than ``ids_before_ms``."""

    partition: PartitionKey
    until: StorePosition
    ids_before_ms: int


@dataclass(frozen=True, slots=True)
class DropTombstones:
    """Remove tombstones up to ``until``: the copy owns, so no older row can arrive any more."""

    partition: PartitionKey
    until: StorePosition


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Remove the head and whatever is left."""

    partition: PartitionKey


@dataclass(frozen=True, slots=True)
class KeepMark:
    """A value of the server's own, by name."""

    name: str
    value: bytes


DiskChange = (
    KeepHead | KeepRecords | KeepRows | DropTail | ClearBatch | CutLog | DropTombstones | DropCopy | KeepMark
)


class StoreReader(Protocol):
    """Reads of the last transaction that is on the disk; what is under way is not seen. Each call is short and
    holds nothing afterwards: batches begin after a cursor. Like raft's ``Storage``, it is asked while the core
    decides, and answers equal questions equally until a transaction completes."""

    def heads(self) -> Mapping[PartitionKey, CopyHead]: ...

    def row(self, partition: PartitionKey, key: bytes) -> StoredRow | None:
        """A tombstone is returned as one."""

    def write_id(self, partition: PartitionKey, write: WriteId) -> StoredWriteId | None: ...

    def records(self, partition: PartitionKey, after: StorePosition, limit_bytes: int) -> tuple[LogRecord, ...]:
        """Read records in order; at least one if there is one, then as many as fit."""

    def rows(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredRow, ...]:
        """Read rows by key, above ``after``; limited as ``records``."""

    def ids(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredWriteId, ...]:
        """Read operation ids by id (UTF-8), limited as ``rows``."""

    def has_older(self, partition: PartitionKey, until: StorePosition) -> bool:
        """Check for a record, row or id with a position of at most ``until``."""

    def mark(self, name: str) -> bytes | None: ...


def later_row(stored: StoredRow | None, arriving: StoredRow) -> StoredRow:
    """Choose between two rows of one key: the rule of ``KeepRows``."""
    return arriving if stored is None or arriving.position > stored.position else stored
