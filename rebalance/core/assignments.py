"""Who holds a partition: voting peers and learners, in the order that placement prefers them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from catalog.core.zone import Strategy

__all__ = ["ASSIGNMENTS_FORMAT", "Assignments", "Strategy", "nodes_of"]

ASSIGNMENTS_FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Voters and learners of one partition.

    Equal when the *sets with roles* are equal: the order is a preference (``peers[0]`` is the preferred
    primary), and a reordering is no reason to move anything. Never compare stored bytes. ``forced`` marks a
    pending set that recovery asked for, ``strategy`` is how the move to it treats later targets; both say how a
    move is made, not where it goes, so they do not count.
    """

    peers: tuple[str, ...]
    learners: tuple[str, ...] = ()
    forced: bool = False
    strategy: Strategy = Strategy.QUEUE

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

    def encode(self) -> bytes:
        document: dict[str, object] = {"v": ASSIGNMENTS_FORMAT, "peers": self.peers, "learners": self.learners}
        if self.forced:
            document["forced"] = True
        if self.strategy is not Strategy.QUEUE:
            document["strategy"] = self.strategy.value
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Assignments:
        """Raises ValueError for a format that this build does not know."""
        document = json.loads(value)
        if document["v"] != ASSIGNMENTS_FORMAT:
            raise ValueError(
                f"assignments format {document['v']} is not known; this build reads {ASSIGNMENTS_FORMAT}"
            )
        strategy = Strategy(document.get("strategy", Strategy.QUEUE.value))
        peers, learners = tuple(document["peers"]), tuple(document["learners"])
        return cls(peers, learners, document.get("forced", False), strategy)

    def at_rest(self) -> Assignments:
        """What stable holds once the move is over: the same, without the marks of a move."""
        return replace(self, forced=False, strategy=Strategy.QUEUE)


def nodes_of(*assignments: Assignments | None) -> frozenset[str]:
    """Union of the nodes of the assignments that are there."""
    present: Iterable[Assignments] = (each for each in assignments if each is not None)
    return frozenset().union(*(each.nodes for each in present))
