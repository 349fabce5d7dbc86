"""Queue for the disk: one transaction is under way, and the next takes all writes that came meanwhile.

Writes (``add``) go first and all together, in order. What fills or clears copies (``add_bulk``) goes with them
as far as it fits; it may be overtaken, as rows carry positions and the later one wins. Writes that waited for a
transaction with bulk go alone: they take a fraction of the time that bulk does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rebalance.core.partition_maps.partition_map import StorePosition
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
    """``holds_bulk``: only writes are taken, as while there is not ``has_room``; but what clears is tried then,
    too, as room comes from there."""

    def __init__(self, bulk_bytes: int) -> None:
        self._bulk_bytes = bulk_bytes
        self._writes: list[_Waiting] = []
        self._bulk: deque[_Waiting] = deque()
        self._dropped: set[PartitionKey] = set()
        """Copies whose bulk goes before anything else is done with them: an exchange drops that of
        thousands."""
        self._void: set[PartitionKey] = set()
        """Copies whose bulk in the transaction that is under way must not be tried again."""
        self._taken: tuple[list[_Waiting], list[_Waiting]] = ([], [])
        self._ticket = 0
        self.is_under_way = False
        self.holds_bulk = False
        self.has_room = True
        self._tries_clearing = True
        self._had_bulk = False

    @property
    def is_settled(self) -> bool:
        """Check that nothing is under way, and no write waits; bulk may."""
        return not self._writes and not self.is_under_way

    def drop_bulk(self, partition: PartitionKey) -> None:
        """The copy has another order now."""
        if self._bulk:
            self._dropped.add(partition)
        if self._taken[1]:
            self._void.add(partition)

    def add(self, *changes: DiskChange, stored: Stored | None = None) -> None:
        for change in changes:
            if isinstance(change, DropCopy):
                self.drop_bulk(change.partition)
        self._writes.append(_Waiting(changes, stored))

    def add_bulk(self, *changes: DiskChange, stored: Stored | None = None) -> None:
        self._forget_dropped()
        self._bulk.append(_Waiting(changes, stored, sum(map(_size, changes))))

    def try_clearing(self) -> None:
        """Now and then: once without room, what clears is not taken again before that."""
        self._tries_clearing = True
        if not self.has_room:
            self._bulk = deque(sorted(self._bulk, key=lambda item: not _clears(item)))

    def take(self) -> WriteDisk | None:
        """The next transaction if none is under way and something waits."""
        self._forget_dropped()
        if self.is_under_way or not (self._writes or self._takes_bulk):
            return None
        bulk: list[_Waiting] = []
        size = 0
        limit = 0 if self._writes and self._had_bulk else self._bulk_bytes
        while limit and self._takes_bulk and (not bulk or size + self._bulk[0].size <= limit):
            bulk.append(self._bulk.popleft())
            size += bulk[-1].size
        self._taken, self._writes = (self._writes, bulk), []
        self._void.clear()
        self._had_bulk = bool(bulk)
        return self._asked()

    def done(self, ticket: int) -> list[Stored]:
        """Return what is on the disk now; nothing for a ticket that is not under way."""
        if ticket != self._ticket or not self.is_under_way:
            return []
        self.is_under_way = False
        writes, bulk = self._taken
        return [item.stored for item in (*writes, *bulk) if item.stored is not None]

    def without_bulk(self, ticket: int) -> bool:
        """Put the bulk part aside until there is room, and send the writes again, alone. False if they were
        alone already."""
        if ticket != self._ticket or not self.is_under_way:
            return True
        writes, bulk = self._taken
        self._forget_dropped()
        self._bulk.extendleft(item for item in reversed(bulk) if _partition(item) not in self._void)
        self._writes[:0] = writes
        self.is_under_way, self._taken = False, ([], [])
        self.has_room = self._tries_clearing = False
        return bool(bulk)

    def _forget_dropped(self) -> None:
        if self._dropped:
            self._bulk = deque(item for item in self._bulk if _partition(item) not in self._dropped)
            self._dropped.clear()

    @property
    def _takes_bulk(self) -> bool:
        if not self._bulk or self.holds_bulk:
            return False
        return self.has_room or (self._tries_clearing and _clears(self._bulk[0]))

    def _asked(self) -> WriteDisk:
        self._ticket += 1
        self.is_under_way = True
        return WriteDisk(
            self._ticket, tuple(change for part in self._taken for item in part for change in item.changes)
        )


def _size(change: DiskChange) -> int:
    match change:
        case KeepRecords():
            return sum(item.size for item in change.records)
        case KeepRows():
            return sum(item.size for item in change.rows)
        case ClearBatch():
            return change.limit_bytes
        case _:
            return 0


def _clears(waiting: _Waiting) -> bool:
    return isinstance(waiting.changes[0], ClearBatch)


def _partition(waiting: _Waiting) -> PartitionKey | None:
    return getattr(waiting.changes[0], "partition", None)
