"""Contents of a copy: log records, rows, operation ids, and its head.

Plain values without I/O; the shell stores them as it likes, as long as a transaction of ``disk_changes`` is
done whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, NewType

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition

WriteId = NewType("WriteId", str)
"""Chosen by the client, one for each write: whoever repeats a write sends the same."""


def abandoned_mark(write: WriteId) -> WriteId:
    """Return the id under which it is kept that ``write`` was abandoned. No client's id ends in a blank."""
    return WriteId(f"{write} ")


PartitionKey = tuple[ZoneId, int]
"""Zone and partition."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """``value`` None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One write: a put, a delete, or all changes of a transaction; without changes it takes the id of a write
    that was abandoned.

    ``previous``: position of the record before it in this partition's log; a copy takes no record whose
    predecessor is not its own last one. ``time_ms``: the partition's time, which its primaries' clocks move on
    while they lead; ids expire by it.
    """

    write: WriteId
    position: StorePosition
    previous: StorePosition
    time_ms: int
    changes: tuple[KeyChange, ...]

    def follows(self, last: StorePosition) -> bool:
        return self.previous == last and self.position.counter == last.counter + 1

    @property
    def size(self) -> int:
        """Bytes of keys, values and id, without what stores them."""
        return len(self.write) + sum(len(item.key) + len(item.value or b"") for item in self.changes)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A key's newest value here. ``value`` None is a tombstone: it says at which position the key was deleted,
    so that an older row that arrives later does not bring the key back."""

    key: bytes
    value: bytes | None
    position: StorePosition

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class StoredWriteId:
    """An entry of the index from ids to positions."""

    write: WriteId
    position: StorePosition
    time_ms: int


class EpochStart(NamedTuple):
    """``after``: the counter of the last record before the epoch's first one."""

    epoch: int
    after: int


EpochTable = tuple[EpochStart, ...]
"""Ascending. Epochs without a record are not in it."""


@dataclass(frozen=True, slots=True)
class CopyHead:
    """State of a copy, stored in one transaction with the rows and records that made it so.

    - ``state``: as the node has it.
    - ``tail``: the last record up to which log and rows are complete. A MOVING copy has records of its primary
      beyond it, after a gap.
    - ``is_clean``: False while rows of another log may be among its own: it is cleared before it is filled.
    - ``log_start``: records after it are in the log, without a gap; one filled from a snapshot has no earlier
      ones and supplies no history from before.
    - ``epochs``: of the whole log, also where records were cut off.
    - ``last_ms``: the time of the last record, or a little less; where the log is empty, ids are not older.
    """

    state: CopyState
    tail: StorePosition = NO_RECORD
    is_clean: bool = True
    log_start: StorePosition = NO_RECORD
    epochs: EpochTable = ()
    last_ms: int = 0

    def appended(self, records: Iterable[LogRecord]) -> CopyHead:
        """Return the head after records that follow ``tail``. Raises ValueError for one that does not."""
        tail, epochs = self.tail, self.epochs
        for record in records:
            epochs, tail = extended(epochs, tail, record), record.position
        return replace(self, tail=tail, epochs=epochs)

    def holds(self, position: StorePosition) -> bool:
        """Check that the record of ``position`` is in this log, be it cut off or not."""
        return position == NO_RECORD or (
            position.counter <= self.tail.counter and position_at(self.epochs, position.counter) == position
        )


def extended(epochs: EpochTable, tail: StorePosition, record: LogRecord) -> EpochTable:
    """The epochs of a log once a record follows ``tail``. Raises ValueError for one that does not."""
    if not record.follows(tail):
        raise ValueError(f"record {record.position} follows {record.previous}, and the log ends at {tail}")
    return reaching(epochs, tail, record.position)


def reaching(epochs: EpochTable, tail: StorePosition, position: StorePosition) -> EpochTable:
    """The epochs of a log that goes on from ``tail`` to ``position``."""
    if epochs and epochs[-1].epoch >= position.epoch:
        return epochs
    return (*epochs, EpochStart(position.epoch, tail.counter))


def position_at(epochs: EpochTable, counter: int) -> StorePosition:
    """The position of the record of ``counter`` in a log with these epochs."""
    for item in reversed(epochs):
        if item.after < counter:
            return StorePosition(item.epoch, counter)
    return NO_RECORD


def last_common(
    one: EpochTable, one_tail: StorePosition, other: EpochTable, other_tail: StorePosition
) -> StorePosition:
    """Return the position up to which two logs are the same. Within an epoch there was one primary, so its
    records are equal where both have them: the last common record is in the highest epoch that both have.

    Invariant: symmetric, and never above either tail.
    """
    ends = [dict(_ends(table, tail)) for table, tail in ((one, one_tail), (other, other_tail))]
    shared = ends[0].keys() & ends[1].keys()
    if not shared:
        return NO_RECORD
    epoch = max(shared)
    return StorePosition(epoch, min(item[epoch] for item in ends))


def _ends(epochs: EpochTable, tail: StorePosition) -> Iterable[tuple[int, int]]:
    """(epoch, counter of its last record)."""
    for item, following in pairwise(epochs):
        yield item.epoch, following.after
    if epochs:
        yield epochs[-1].epoch, tail.counter
