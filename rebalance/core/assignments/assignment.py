"""The nodes that hold a partition, voting peers and learners in the order that placement prefers, and what is
missing.

``shortfall`` is the one answer for causes, counts, metrics and the filling up. What is asked for is the newest
placement: as many replicas and voters as the zone wants, as far as its data nodes go. It is compared with where
the partition is going (``planned``, else ``pending``, else ``stable``): what is being copied is not missing,
what nobody is making is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Record
from catalog.core.zone import Strategy
from rebalance.core.causes.cause import Cause

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
        """The same without the marks of a move, as stable holds it once the move is over."""
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


@dataclass(frozen=True, slots=True)
class ReplicaShortfall:
    """Replicas of one partition that are missing or broken. ``awaited``: nodes of the placement that have no
    replica and are given none, in its order. ``missing`` and ``missing_voters``: so many fewer than
    ``replicas`` and ``voters``, which are asked for; a replica on a node outside of the placement counts as
    well as any. ``broken``: living nodes whose replica has failed, in name order. ``quorum``: the zone's
    explicit QUORUM SIZE where so few data nodes are left that not as many replicas vote; 0: as many do, or the
    zone names none."""

    replicas: int = 0
    voters: int = 0
    missing: int = 0
    missing_voters: int = 0
    awaited: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    quorum: int = 0

    @property
    def is_short(self) -> bool:
        return self.missing > 0 or self.missing_voters > 0 or self.quorum > 0

    @property
    def cause(self) -> str:
        """Cause of the shortfall, with what is waited for; empty: the partition is not short."""
        if not self.quorum:
            return Cause.REPLICAS_MISSING.text(self.detail) if self.detail else ""
        matching = "1 data node matches" if self.voters == 1 else f"{self.voters} data nodes match"
        quorum = f"QUORUM SIZE {self.quorum}, and {matching}"
        return Cause.QUORUM_EXCEEDS_DATA_NODES.text("; ".join(filter(None, (quorum, self.detail))))

    @property
    def detail(self) -> str:
        """Replicas or voters that are there, of those asked for, and nodes that are awaited, as the text of
        ``REPLICAS_MISSING`` has them; empty: none is missing."""
        if not self.missing and not self.missing_voters:
            return ""
        awaits = f", awaits {', '.join(self.awaited)}" if self.awaited else ""
        if self.missing:
            return f"{self.replicas - self.missing} of {self.replicas} replicas{awaits}"
        return f"{self.voters - self.missing_voters} of {self.voters} voters{awaits}"


NOTHING_MISSING = ReplicaShortfall()


def shortfall(
    asked: Assignments, going_to: Assignments, broken: Iterable[str] = (), quorum: int = 0
) -> ReplicaShortfall:
    """``asked``: the placement; ``going_to``: what the partition has when its moves have ended; ``quorum``: the
    zone's explicit one, 0: it names none."""
    missing = max(len(asked.nodes) - len(going_to.nodes), 0)
    missing_voters = max(len(asked.peers) - len(going_to.peers), 0)
    awaited: tuple[str, ...] = ()
    if missing:
        awaited = tuple(node for node in asked.copies if node not in going_to.nodes)
    elif missing_voters:
        awaited = tuple(node for node in asked.peers if node not in going_to.peers)
    return ReplicaShortfall(
        replicas=len(asked.nodes),
        voters=len(asked.peers),
        missing=missing,
        missing_voters=missing_voters,
        awaited=awaited,
        broken=tuple(sorted(broken)),
        quorum=quorum if quorum > len(asked.peers) else 0,
    )
