"""Who holds a partition: voting peers and learners, in the order that placement prefers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Record
from catalog.core.zone import Strategy

__all__ = ["Assignments", "Strategy", "nodes_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Assignments(Record):
    """Voters and learners of one partition.

    Equal when the *sets with roles* are equal: the order is a preference (``peers[0]`` is the preferred
    primary), and a reordering is no reason to move anything. Never compare stored bytes. ``strategy`` is how
    the move treats later targets, ``forced``, ``empty`` and ``absent`` are recovery's; they say how a move is
    made, not where it goes, so they do not count.

    ``forced``: a pending set that recovery asked for, in which one node founds the group anew; the number is
    the event revision of the recovery, and names the generation of the group that begins. 0: an ordinary move.
    ``empty``: no copy is left, so the forced group begins without data. ``absent``: nodes with copies that were
    not there when that was decided; the group is founded only while none of them is back."""

    peers: tuple[str, ...]
    learners: tuple[str, ...] = ()
    forced: int = 0
    strategy: Strategy = Strategy.QUEUE
    empty: bool = False
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.peers:
            raise ValueError("assignments need at least one peer")
        if len({*self.peers, *self.learners}) != len(self.peers) + len(self.learners):
            raise ValueError(f"a node has two roles or is named twice: {self.peers} {self.learners}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignments):
            return NotImplemented
        return self._roles() == other._roles()

    def __hash__(self) -> int:
        return hash(self._roles())

    def _roles(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.peers), frozenset(self.learners)

    @property
    def primary(self) -> str:
        """The preferred primary."""
        return self.peers[0]

    @property
    def nodes(self) -> frozenset[str]:
        """Every node with a replica, whatever its role."""
        return frozenset((*self.peers, *self.learners))

    @property
    def copies(self) -> tuple[str, ...]:
        """Every node in the order in which a store zone prefers it as the primary: learners last."""
        return *self.peers, *self.learners

    def at_rest(self) -> Assignments:
        """What stable holds once the move is over: the same, without the marks of a move."""
        return replace(self, forced=0, strategy=Strategy.QUEUE, empty=False, absent=())


Assignments.codec = Codec(
    Assignments,
    omit=("forced", "empty", "strategy", "absent"),
    required=("learners",),
    order=("peers", "learners", "forced", "empty", "strategy", "absent"),
    remembered=4_096,
)


def nodes_of(*assignments: Assignments | None) -> frozenset[str]:
    """Union of the nodes of the assignments that are there."""
    present: Iterable[Assignments] = (assignment for assignment in assignments if assignment is not None)
    return frozenset().union(*(assignment.nodes for assignment in present))
