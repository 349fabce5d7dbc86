"""A server's write-ahead log as an exchange needs it: checkpoints, reservations, truncation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.core.zone import ZoneId

PartitionKey = tuple[ZoneId, int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``position``: of its record in the log. ``counters``: of every partition when it was made (PME-053)."""

    position: int
    counters: Mapping[PartitionKey, int]


class WriteAheadLog:
    """Records ``start`` to ``end`` exist; a record is (partition, update). ``reserved`` is a position: nothing
    from there on is cut off until it is released (PME-054)."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[PartitionKey, int]] = []
        self.checkpoints: list[Checkpoint] = []
        self.reserved: Checkpoint | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def append(self, partition: PartitionKey, update: int) -> None:
        self.records.append((partition, update))

    def checkpoint(self, counters: Mapping[PartitionKey, int]) -> Checkpoint:
        made = Checkpoint(self.end, dict(counters))
        self.checkpoints.append(made)
        return made

    def truncate(self, position: int) -> int:
        """Cut off what is before ``position``, as far as that is allowed; returns where the log begins now."""
        limit = self.reserved.position if self.reserved is not None else self.end
        begin = max(self.start, min(position, limit))
        self.records = self.records[begin - self.start :]
        self.start = begin
        return begin

    def reserve(self) -> dict[PartitionKey, int]:
        """Reserve the earliest checkpoint whose record is still in the log (PME-052): by partition the earliest
        counter from which updates can be replayed (PME-055). Empty without a checkpoint."""
        self.reserved = next((each for each in self.checkpoints if each.position >= self.start), None)
        return dict(self.reserved.counters) if self.reserved is not None else {}

    def release(self) -> None:
        self.reserved = None

    def updates_after(self, partition: PartitionKey, counter: int) -> frozenset[int]:
        """The updates of a partition above ``counter`` that the log holds."""
        return frozenset(update for key, update in self.records if key == partition and update > counter)
