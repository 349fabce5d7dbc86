"""Check of a copy on disk against the rules of the log: the work of ``zonectl store fsck``.

It repairs nothing. Rows and ids up to the log's start have no record to be compared with. A copy that is not
clean is being cleared, or filled anew after a part of its log was dropped: log, rows and ids may have holes,
and have none left when it is clean again. Of such a copy only what is there is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TypeVar

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.store.core.disk_changes import StoreReader
from rebalance.store.core.log_records import (
    CopyHead,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    position_at,
)

K = TypeVar("K")
T = TypeVar("T")

READ_BYTES = 1 << 20


class DefectCode(Enum):
    LOG_GAP = "LOG_GAP"  # a record does not follow the one before it
    LOG_END = "LOG_END"  # the log does not begin or end where the head says
    EPOCH_ORDER = "EPOCH_ORDER"  # epochs do not ascend, or the head has others than the log
    ROW_DIFFERS = "ROW_DIFFERS"  # a row is not what its newest record says
    ROW_WITHOUT_RECORD = "ROW_WITHOUT_RECORD"
    ID_DIFFERS = "ID_DIFFERS"  # the index does not lead to the record of the id
    ID_WITHOUT_RECORD = "ID_WITHOUT_RECORD"
    COPY_WITHOUT_HEAD = "COPY_WITHOUT_HEAD"


@dataclass(frozen=True, slots=True)
class CopyDefect:
    """``place``: a position, a key or an id. ``detail``: what is stored, and what should be."""

    code: DefectCode
    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """``head`` None: there are entries of a copy that is not there. Counts are of what was read."""

    partition: PartitionKey
    head: CopyHead | None
    records: int = 0
    rows: int = 0
    ids: int = 0
    defects: tuple[CopyDefect, ...] = ()


@dataclass(slots=True)
class _Log:
    """Contents of a log, for comparison. ``values``: by key its newest record, and the hash of the value it
    wrote (None: it was deleted), as values may be too many to be kept."""

    positions: dict[StorePosition, str] = field(default_factory=dict)
    values: dict[bytes, tuple[StorePosition, int | None]] = field(default_factory=dict)
    ids: dict[str, StorePosition] = field(default_factory=dict)


def check_copy(reader: StoreReader, partition: PartitionKey, head: CopyHead | None) -> CopyCheck:
    """Reads everything of the copy once. What is missing is a defect of a clean copy only."""
    if head is None:
        defect = CopyDefect(DefectCode.COPY_WITHOUT_HEAD, "-", "entries of a copy that has no head")
        return CopyCheck(partition, None, defects=(defect,))
    defects = list(_table_defects(head))
    log = _Log()
    records = _all(reader.records, partition, NO_RECORD, lambda record: record.position)
    # All of it is read in any case, as it fills ``log``.
    log_defects = list(_log_defects(head, records, log))
    keys: set[bytes] = set()
    for row in _all(reader.rows, partition, b"", lambda row: row.key):
        keys.add(row.key)
        defects += _row_defects(head, log, row)
    writes: set[str] = set()
    for entry in _all(reader.ids, partition, b"", lambda entry: entry.write.encode()):
        writes.add(entry.write)
        if head.is_clean:
            defects += _id_defects(head, log, entry)
    if head.is_clean:
        defects += [*log_defects, *_missing(log, keys, writes)]
    return CopyCheck(partition, head, len(log.positions), len(keys), len(writes), tuple(defects))


def _missing(log: _Log, keys: Container[bytes], writes: Container[str]) -> Iterator[CopyDefect]:
    for key, (position, value) in log.values.items():
        if value is not None and key not in keys:
            yield _defect(DefectCode.ROW_DIFFERS, key, f"no row; the record of {position} wrote one")
    for write, position in log.ids.items():
        if write not in writes:
            yield _defect(DefectCode.ID_DIFFERS, write, f"not in the index; its record is {position}")


def _table_defects(head: CopyHead) -> Iterator[CopyDefect]:
    for before, after in pairwise(head.epochs):
        if not (before.epoch < after.epoch and before.after < after.after):
            detail = f"the head has epoch {after.epoch} after {after.after}, and {before.epoch} before it"
            yield CopyDefect(DefectCode.EPOCH_ORDER, f"epoch {after.epoch}", detail)


def _log_defects(head: CopyHead, records: Iterator[LogRecord], log: _Log) -> Iterator[CopyDefect]:
    """Fills ``log``. A copy that is being filled may have one gap: after its tail."""
    last = head.log_start
    is_filled = head.state is not CopyState.MOVING
    for record in records:
        position = record.position
        if position <= head.log_start:
            yield _defect(DefectCode.LOG_END, position, f"a record of before the log's start {head.log_start}")
        elif not record.follows(last) and (is_filled or last != head.tail):
            yield _defect(DefectCode.LOG_GAP, position, f"follows {record.previous}; the one before is {last}")
        if position.epoch < last.epoch:
            yield _defect(DefectCode.EPOCH_ORDER, position, f"the record before it is {last}")
        if position <= head.tail and position_at(head.epochs, position.counter) != position:
            at = position_at(head.epochs, position.counter)
            yield _defect(DefectCode.EPOCH_ORDER, position, f"by the head's epochs it is {at}")
        last = position
        log.positions[position] = record.write
        log.ids[record.write] = position
        for change in record.changes:
            log.values[change.key] = position, None if change.value is None else hash(change.value)
    if last < head.tail or (is_filled and last != head.tail):
        yield _defect(DefectCode.LOG_END, last, f"the log ends here; the head's last record is {head.tail}")


def _row_defects(head: CopyHead, log: _Log, row: StoredRow) -> Iterator[CopyDefect]:
    """Rows of a snapshot may be newer than the log of a copy that is being filled."""
    position, value = log.values.get(row.key, (NO_RECORD, None))
    if row.position == position:
        if (None if row.value is None else hash(row.value)) != value:
            yield _defect(DefectCode.ROW_DIFFERS, row.key, f"has another value than its record {position}")
    elif not head.is_clean:
        return
    elif row.position < position:
        yield _defect(DefectCode.ROW_DIFFERS, row.key, f"is of {row.position}; its newest record is {position}")
    elif row.position > head.log_start and head.state is not CopyState.MOVING:
        yield _defect(DefectCode.ROW_WITHOUT_RECORD, row.key, f"is of {row.position}, which did not write it")


def _id_defects(head: CopyHead, log: _Log, entry: StoredWriteId) -> Iterator[CopyDefect]:
    position = log.ids.get(entry.write)
    if position is not None and entry.position < position:
        yield _defect(
            DefectCode.ID_DIFFERS, entry.write, f"leads to {entry.position}; its record is {position}"
        )
    elif entry.position > head.log_start and head.state is not CopyState.MOVING and entry.position != position:
        yield _defect(DefectCode.ID_WITHOUT_RECORD, entry.write, f"leads to {entry.position}")


def _defect(code: DefectCode, place: object, detail: str) -> CopyDefect:
    text = place.decode(errors="backslashreplace") if isinstance(place, bytes) else str(place)
    return CopyDefect(code, text, detail)


def _all(
    read: Callable[[PartitionKey, K, int], Sequence[T]],
    partition: PartitionKey,
    after: K,
    key: Callable[[T], K],
) -> Iterator[T]:
    """All entries that ``read`` gives in batches, each beginning after the ``key`` of the last one."""
    while batch := read(partition, after, READ_BYTES):
        yield from batch
        after = key(batch[-1])
