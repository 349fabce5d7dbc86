"""A server's disk in memory: transactions are whole or not at all, and what was synced stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

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
    later_row,
)
from rebalance.store.core.log_records import (
    CopyHead,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)

T = TypeVar("T")


@dataclass(slots=True)
class StoredPartition:
    head: CopyHead
    log: dict[StorePosition, LogRecord] = field(default_factory=dict)
    rows: dict[bytes, StoredRow] = field(default_factory=dict)
    ids: dict[WriteId, StoredWriteId] = field(default_factory=dict)

    def after(self, position: StorePosition) -> list[LogRecord]:
        return [self.log[item] for item in sorted(self.log) if item > position]


class SimulatedDisk:
    """A ``StoreReader``. ``commits`` counts transactions."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, StoredPartition] = {}
        self.marks: dict[str, bytes] = {}
        self.commits = 0

    # Transactions

    def commit(self, changes: tuple[DiskChange, ...]) -> None:
        self.commits += 1
        for change in changes:
            self._change(change)

    def _change(self, change: DiskChange) -> None:
        if isinstance(change, KeepMark):
            self.marks[change.name] = change.value
            return
        if isinstance(change, DropCopy):
            self.partitions.pop(change.partition, None)
            return
        if isinstance(change, KeepHead):
            stored = self.partitions.setdefault(change.partition, StoredPartition(change.head))
            stored.head = change.head
            return
        stored = self.partitions[change.partition]
        match change:
            case KeepRecords(_, records, tombstones):
                for record in records:
                    stored.log[record.position] = record
                    known = stored.ids.get(record.write)
                    if known is None or known.position < record.position:
                        entry = StoredWriteId(record.write, record.position, record.time_ms)
                        stored.ids[record.write] = entry
                    for item in record.changes:
                        _keep(stored, StoredRow(item.key, item.value, record.position), tombstones)
            case KeepRows(_, rows, ids):
                for row in rows:
                    _keep(stored, row, tombstones=True)
                for entry in ids:
                    present = stored.ids.get(entry.write)
                    if present is None or present.position < entry.position:
                        stored.ids[entry.write] = entry
            case DropTail(_, above, until, keys):
                _drop_tail(stored, above, until, keys)
            case ClearBatch(_, until, limit):
                _clear(stored, until, limit)
            case CutLog(_, until, before_ms):
                for position in [item for item in stored.log if item <= until]:
                    del stored.log[position]
                old = [e for e in stored.ids.values() if e.position <= until and e.time_ms < before_ms]
                for entry in old:
                    del stored.ids[entry.write]
            case DropTombstones(_, until):
                dead = [r.key for r in stored.rows.values() if r.value is None and r.position <= until]
                for key in dead:
                    del stored.rows[key]

    # Reads

    def heads(self) -> Mapping[PartitionKey, CopyHead]:
        heads = {}
        for key, stored in self.partitions.items():
            owns = stored.head.state is CopyState.OWNING
            heads[key] = stored.head.appended(stored.after(stored.head.tail)) if owns else stored.head
        return heads

    def row(self, partition: PartitionKey, key: bytes) -> StoredRow | None:
        stored = self.partitions.get(partition)
        return stored.rows.get(key) if stored is not None else None

    def write_id(self, partition: PartitionKey, write: WriteId) -> StoredWriteId | None:
        stored = self.partitions.get(partition)
        return stored.ids.get(write) if stored is not None else None

    def records(self, partition: PartitionKey, after: StorePosition, limit_bytes: int) -> tuple[LogRecord, ...]:
        stored = self.partitions.get(partition)
        log = stored.after(after) if stored is not None else []
        return _fitting(log, [item.size for item in log], limit_bytes)

    def rows(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredRow, ...]:
        stored = self.partitions.get(partition)
        rows = [stored.rows[key] for key in sorted(stored.rows) if key > after] if stored else []
        return _fitting(rows, [item.size for item in rows], limit_bytes)

    def ids(self, partition: PartitionKey, after: bytes, limit_bytes: int) -> tuple[StoredWriteId, ...]:
        stored = self.partitions.get(partition)
        ids = [stored.ids[key] for key in sorted(stored.ids) if key.encode() > after] if stored else []
        return _fitting(ids, [len(item.write) for item in ids], limit_bytes)

    def has_older(self, partition: PartitionKey, until: StorePosition) -> bool:
        stored = self.partitions.get(partition)
        if stored is None:
            return False
        positions = [item.position for item in stored.rows.values()]
        positions += [item.position for item in stored.ids.values()]
        return any(item <= until for item in (*positions, *stored.log))

    def mark(self, name: str) -> bytes | None:
        return self.marks.get(name)


def _keep(stored: StoredPartition, row: StoredRow, tombstones: bool) -> None:
    kept = later_row(stored.rows.get(row.key), row)
    if kept.value is None and not tombstones and kept is row:
        stored.rows.pop(row.key, None)
    else:
        stored.rows[row.key] = kept


def _drop_tail(
    stored: StoredPartition, above: StorePosition, until: StorePosition, keys: tuple[bytes, ...]
) -> None:
    for position in [item for item in stored.log if above < item <= until]:
        record = stored.log.pop(position)
        if stored.ids.get(record.write) is not None and stored.ids[record.write].position == position:
            del stored.ids[record.write]
    for key in keys:
        row = stored.rows.get(key)
        if row is not None and above < row.position <= until:
            del stored.rows[key]


def _clear(stored: StoredPartition, until: StorePosition, limit_bytes: int) -> None:
    freed = 0
    for row in [item for item in stored.rows.values() if item.position <= until]:
        if freed >= limit_bytes:
            return
        freed += row.size
        del stored.rows[row.key]
    for entry in [item for item in stored.ids.values() if item.position <= until]:
        if freed >= limit_bytes:
            return
        freed += len(entry.write)
        del stored.ids[entry.write]
    for position in [item for item in sorted(stored.log) if item <= until]:
        if freed >= limit_bytes:
            return
        freed += stored.log.pop(position).size


def _fitting(entries: list[T], sizes: list[int], limit_bytes: int) -> tuple[T, ...]:
    taken, total = 0, 0
    while taken < len(entries) and (not taken or total + sizes[taken] <= limit_bytes):
        total += sizes[taken]
        taken += 1
    return tuple(entries[:taken])
