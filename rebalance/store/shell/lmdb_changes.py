"""The changes of a transaction (``disk_changes``), carried out in one transaction of LMDB.

Invariant: the position of every id is that of a record in the log, or a key of ``bare_ids``. So what is older
than a position is found without a look at all ids. Entries of ``bare_ids`` whose id has a later position by
now, or is gone, mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import lmdb

from rebalance.core.partition_maps.store_positions import StorePosition
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
from rebalance.store.core.log_records import StoredRow, StoredWriteId, WriteId
from rebalance.store.shell.disk_format import (
    bare_id_of,
    bare_id_value,
    encoded,
    id_of,
    id_value,
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
                    self._delete_all(name)

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
        with self._cursor("log") as cursor:
            there = cursor.set_range(self._prefix + position_after(above))
            while there and self._is_up_to(cursor, until):
                record = record_of(cursor.value())
                self._delete_id_at(record.write, record.position)
                there = _delete_here(cursor)
        for key in map(row_key, keys):
            row = self._get("rows", key)
            if row is not None and above < row_position(row) <= until:
                self._delete("rows", key)
                self._delete("tombstones", key)

    def _clear(self, until: StorePosition, limit_bytes: int) -> None:
        """Records with their ids, then rows, then ids without a record; at least one of them."""
        left = limit_bytes
        with self._cursor("log") as cursor:
            there = cursor.set_range(self._prefix)
            while left > 0 and there and self._is_up_to(cursor, until):
                record = record_of(cursor.value())
                left -= record.size
                self._delete_id_at(record.write, record.position)
                there = _delete_here(cursor)
        with self._cursor("rows") as cursor:
            there = cursor.set_range(self._prefix)
            while left > 0 and there and cursor.key().startswith(self._prefix):
                if row_position(cursor.value()) > until:
                    there = cursor.next()
                    continue
                row = row_of(cursor.key(), cursor.value())
                left -= row.size
                self._delete("tombstones", row_key(row.key))
                there = _delete_here(cursor)
        with self._cursor("bare_ids") as cursor:
            there = cursor.set_range(self._prefix)
            while left > 0 and there and self._is_up_to(cursor, until):
                write, _ = bare_id_of(cursor.value())
                left -= len(write)
                self._delete_id_at(write, position_of(cursor.key()))
                there = _delete_here(cursor)

    def _cut_log(self, until: StorePosition, ids_before_ms: int) -> None:
        """Ids expire in the order of their positions, as the times of a log never go back."""
        with self._cursor("bare_ids") as cursor:
            there = cursor.set_range(self._prefix)
            while there and self._is_up_to(cursor, until):
                write, time_ms = bare_id_of(cursor.value())
                if time_ms >= ids_before_ms:
                    break
                self._delete_id_at(write, position_of(cursor.key()))
                there = _delete_here(cursor)
        with self._cursor("log") as cursor:
            there = cursor.set_range(self._prefix)
            while there and self._is_up_to(cursor, until):
                record = record_of(cursor.value())
                if record.time_ms < ids_before_ms:
                    self._delete_id_at(record.write, record.position)
                else:
                    bare = bare_id_value(record.write, record.time_ms)
                    self._put("bare_ids", position_bytes(record.position), bare)
                there = _delete_here(cursor)

    def _drop_tombstones(self, until: StorePosition) -> None:
        with self._cursor("tombstones") as cursor:
            there = cursor.set_range(self._prefix)
            while there and cursor.key().startswith(self._prefix):
                row = self._txn.get(cursor.key(), db=self._databases["rows"])
                if row is None or row_position(row) > until:
                    there = cursor.next()
                    continue
                self._txn.delete(cursor.key(), db=self._databases["rows"])
                there = _delete_here(cursor)

    def _delete_all(self, database: str) -> None:
        with self._cursor(database) as cursor:
            there = cursor.set_range(self._prefix)
            while there and cursor.key().startswith(self._prefix):
                there = _delete_here(cursor)

    def _cursor(self, database: str) -> lmdb.Cursor[bytes]:
        return self._txn.cursor(db=self._databases[database])

    def _is_up_to(self, cursor: lmdb.Cursor[bytes], until: StorePosition) -> bool:
        """Check that the cursor is at an entry of this copy whose key is a position up to ``until``."""
        key = cursor.key()
        return key.startswith(self._prefix) and position_of(key) <= until


def _delete_here(cursor: lmdb.Cursor[bytes]) -> bool:
    """Delete the entry at the cursor; True if the cursor is at the next one now."""
    cursor.delete()
    return bool(cursor.key())
