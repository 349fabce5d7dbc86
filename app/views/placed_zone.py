"""A zone's newest target as the keyspace mirror has it."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import StoredTarget, TargetPointer, available_target


@dataclass(frozen=True, slots=True)
class PlacedZone:
    """A zone's newest target as the mirror has it; ``stored`` is whole. Rows are read when they are asked for:
    a zone may have many partitions, and most questions are about one. ``quorum``: the zone's explicit QUORUM
    SIZE; 0: it names none."""

    stored: StoredTarget
    quorum: int = 0

    @property
    def pointer(self) -> TargetPointer:
        return self.stored.pointer

    @property
    def targets(self) -> tuple[Assignments, ...]:
        return tuple(self.stored.assignments())

    def placement(self, number: int) -> Assignments | None:
        """What the zone asks for, nodes that have left included; None: it has no partition of that number."""
        if number >= self.pointer.partitions:
            return None
        return self.stored.assignments_of(self.stored.row(number))

    def target(self, placement: Assignments | None, stable: Assignments | None) -> Assignments | None:
        """What the partition of this ``placement`` is to become, as the guarded write asks for it."""
        return available_target(placement, stable, self.pointer.gone) if placement is not None else None
