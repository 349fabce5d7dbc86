"""Whether a partition has the majority of its voters now: a fact of its own, beside what it waits for.

A cause names one reason among several, and a move or a reset may stand before it. This counts instead: the
voters of ``stable`` whose node lives and whose member runs, against the majority of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.quorum import majority
from rebalance.core.keyspace.records import MemberState
from rebalance.core.moves.move_status import PartitionView


@dataclass(frozen=True, slots=True)
class VoterCount:
    """Of one partition. ``needed``: the majority of its voters, or of a store zone one replica that leads."""

    running: int
    needed: int

    @property
    def is_majority(self) -> bool:
        return self.running >= self.needed


def voter_count(view: PartitionView, alive: frozenset[str]) -> VoterCount | None:
    """``alive``: nodes whose lease lives. None: nothing can be said, as the partition is not founded yet, a
    record of it cannot be read, or its zone is deactivated."""
    if view.stable is None or view.unreadable:
        return None
    if view.owners is not None:
        if view.owners.is_resting:
            return None
        return VoterCount(int(view.owners.leader in alive), 1)
    if view.configuration is None:
        return None  # Its group has never had a leader, so it has had no majority to lose.
    voters = frozenset(view.stable.peers)
    running = [
        node
        for node in voters & alive
        if node in view.members and view.members[node].state is MemberState.RUNNING
    ]
    return VoterCount(len(running), majority(len(voters)))


def lacks_majority(view: PartitionView, alive: frozenset[str]) -> bool:
    """Whether the partition is known to be without the majority of its voters."""
    count = voter_count(view, alive)
    return count is not None and not count.is_majority
