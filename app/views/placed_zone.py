"""A zone's newest target as the keyspace mirror has it."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.assignments import Assignments
from rebalance.core.target import StoredTarget, TargetPointer, available_target


@dataclass(frozen=True, slots=True)
class PlacedZone:
    """A zone's newest target as the mirror has it; ``stored`` is whole. Rows are read when they are asked for:
    a zone may have many partitions, and most questions are about one."""

    stored: StoredTarget

    @property
    def pointer(self) -> TargetPointer:
        return self.stored.pointer

    @property
    def targets(self) -> tuple[Assignments, ...]:
        return tuple(self.stored.assignments())

    def target(self, number: int, stable: Assignments | None) -> Assignments:
        """What the partition is to become, as the guarded write asks for it."""
        return available_target(self.stored.assignments_of(self.stored.row(number)), stable, self.pointer.gone)
