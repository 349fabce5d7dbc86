"""What waits for the disk: one transaction is under way, and the next takes all writes that came meanwhile.

Writes (``add``) go first and all together, in order. What fills or clears copies (``add_bulk``) goes with them
as far as it fits; it may be overtaken, as rows carry positions and the later one wins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rebalance.core.store_positions import StorePosition
from rebalance.store.core.disk_changes import ClearBatch, DiskChange, DropCopy, KeepRecords, KeepRows
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.store_effects import WriteDisk


@dataclass(frozen=True, slots=True)
class LogStored:
    """The log of a copy is on the disk up to here."""

    partition: PartitionKey
    position: StorePosition


@dataclass(frozen=True, slots=True)
class StepStored:
    """A step of filling or clearing a copy is on the disk. ``life``: which life of the copy it belongs to; a
    later one does not know it."""

    partition: PartitionKey
    life: int


Stored = LogStored | StepStored


@dataclass(frozen=True, slots=True)
class _Waiting:
    changes: tuple[DiskChange, ...]
    stored: Stored | None
    size: int = 0


class DiskQueue:
    """``holds_bulk``: only writes are taken, and so without ``has_room``."""

    def __init__(self, bulk_bytes: int) -> None:
        self._bulk_bytes = bulk_bytes
        self._writes: list[_Waiting] = []
        self._bulk: deque[_Waiting] = deque()
        self._taken: tuple[list[_Waiting], list[_Waiting]] = ([], [])
        self._ticket = 0
        self._under_way = False
        self.holds_bulk = False
        self.has_room = True

    @property
    def is_under_way(self) -> bool:
        return self._under_way

    @property
    def takes_bulk(self) -> bool:
        return bool(self._bulk) and self.has_room and not self.holds_bulk

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way, and no write waits; bulk may."""
        return not self._writes and not self._under_way

    def drop_bulk(self, partition: PartitionKey) -> None:
        """The copy has another order now."""
        self._bulk = deque(each for each in self._bulk if _partition(each) != partition)

    def add(self, *changes: DiskChange, stored: Stored | None = None) -> None:
        for change in changes:
            if isinstance(change, DropCopy):
                self.drop_bulk(change.partition)
        self._writes.append(_Waiting(changes, stored))

    def add_bulk(self, *changes: DiskChange, stored: Stored | None = None) -> None:
        self._bulk.append(_Waiting(changes, stored, sum(map(_size, changes))))

    def take(self) -> WriteDisk | None:
        """The next transaction if none is under way and something waits."""
        if self._under_way or not (self._writes or self.takes_bulk):
            return None
        bulk: list[_Waiting] = []
        size = 0
        while self.takes_bulk and (not bulk or size + self._bulk[0].size <= self._bulk_bytes):
            bulk.append(self._bulk.popleft())
            size += bulk[-1].size
        self._taken, self._writes = (self._writes, bulk), []
        return self._asked()

    def done(self, ticket: int) -> list[Stored]:
        """What is on the disk now; nothing for a ticket that is not under way."""
        if ticket != self._ticket or not self._under_way:
            return []
        self._under_way = False
        writes, bulk = self._taken
        return [each.stored for each in (*writes, *bulk) if each.stored is not None]

    def without_bulk(self, ticket: int) -> bool:
        """There was no room: the bulk part waits, what clears first, and the writes go again with the next
        transaction. False if there was no bulk part."""
        if ticket != self._ticket or not self._under_way:
            return True
        writes, bulk = self._taken
        self._bulk = deque(
            sorted((*bulk, *self._bulk), key=lambda each: not isinstance(each.changes[0], ClearBatch))
        )
        self._writes = [*writes, *self._writes]
        self._under_way, self.has_room = False, False
        return bool(bulk)

    def _asked(self) -> WriteDisk:
        self._ticket += 1
        self._under_way = True
        return WriteDisk(
            self._ticket, tuple(change for part in self._taken for each in part for change in each.changes)
        )


def _size(change: DiskChange) -> int:
    match change:
        case KeepRecords():
            return sum(each.size for each in change.records)
        case KeepRows():
            return sum(each.size for each in change.rows)
        case ClearBatch():
            return change.limit_bytes
        case _:
            return 0


def _partition(waiting: _Waiting) -> PartitionKey | None:
    return getattr(waiting.changes[0], "partition", None)
