"""Which replicas of a partition are missing: the one answer for causes, counts, metrics and the filling up.

What is asked for is the newest placement: as many replicas and voters as the zone wants, as far as its data
nodes go. It is compared with where the partition is going (``planned``, else ``pending``, else ``stable``):
what is being copied is not missing, what nobody is making is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause


@dataclass(frozen=True, slots=True)
class ReplicaShortfall:
    """Of one partition. ``awaited``: nodes of the placement that have no replica and are given none, in its
    order. ``missing`` and ``missing_voters``: so many fewer than ``replicas`` and ``voters``, which are asked
    for; a replica on a node outside of the placement counts as well as any. ``broken``: living nodes whose
    replica has failed, in name order. ``quorum``: the zone's explicit QUORUM SIZE where so few data nodes are
    left that not as many replicas vote; 0: as many do, or the zone names none."""

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
        """What is waited for; empty: it is not short."""
        if not self.quorum:
            return Cause.REPLICAS_MISSING.text(self.detail) if self.detail else ""
        matching = "1 data node matches" if self.voters == 1 else f"{self.voters} data nodes match"
        quorum = f"QUORUM SIZE {self.quorum}, and {matching}"
        return Cause.QUORUM_EXCEEDS_DATA_NODES.text("; ".join(filter(None, (quorum, self.detail))))

    @property
    def detail(self) -> str:
        """As ``REPLICAS_MISSING`` tells it; empty: none is."""
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
