"""Pace at which an agent looks again at a partition at which nothing has happened.

Keys that change bring a partition up at once. A member changes without a key: its process ends, its group
elects another leader. So it is looked at now and then: soon after something has happened to the partition,
since more often follows, and the longer nothing does the more seldom. A host that tells of each change
(``NodeAgent.notice``) needs no looks; those that remain are a reminder.
"""

from __future__ import annotations

import asyncio
import random

from rebalance.core.keyspace.keys import PartitionId

QUIET_SHARE = 0.125
"""A pause between two looks is this share of the time for which nothing has happened."""
FOLLOWING_S = (0.15, 1.0)
CHANGING_S = (0.1, 0.5)
STARTING_S = (0.1, 0.5)
COPYING_S = (0.2, 1.0)
BLOCKED_S = (0.5, 1.0)
IDLE_S = 1.5
REMINDER_S = 30.0
NOTIFIED_CHANGING_S = 1.0


class Pace:
    """Pace of one node. ``notified``: each change of a member or a mirror is announced. Times are seconds."""

    def __init__(self, chance: random.Random, *, notified: bool = False) -> None:
        self._chance = chance
        self._notified = notified
        self._since: dict[PartitionId, float] = {}

    def stirred(self, partition: PartitionId) -> None:
        """Note that something has happened to the partition just now."""
        self._since[partition] = asyncio.get_running_loop().time()

    def forget(self, partition: PartitionId) -> None:
        """The node has nothing of it any more."""
        self._since.pop(partition, None)

    def following_s(self, partition: PartitionId) -> float:
        """Return the pace beside a member that does not lead, while its group is to change."""
        return REMINDER_S if self._notified else self._grown(partition, *FOLLOWING_S)

    def starting_s(self, partition: PartitionId) -> float:
        """Return the pace until a process answers."""
        return IDLE_S if self._notified else self._grown(partition, *STARTING_S)

    def copying_s(self, partition: PartitionId) -> float:
        """Return the pace until a mirror has its first copy."""
        return REMINDER_S if self._notified else self._grown(partition, *COPYING_S)

    def changing_s(self, partition: PartitionId) -> float:
        """Return the pace beside a leader whose change runs: joiners' absence is measured meanwhile."""
        return NOTIFIED_CHANGING_S if self._notified else self._grown(partition, *CHANGING_S)

    def blocked_s(self, partition: PartitionId) -> float:
        """Return the pace beside a leader whose change cannot begin: joiners' absence is measured meanwhile."""
        return NOTIFIED_CHANGING_S if self._notified else self._grown(partition, *BLOCKED_S)

    def leaderless_s(self) -> float:
        """Return the pace beside a member that knows no leader: for how long is measured, and the copy's
        position published."""
        return IDLE_S

    def idle_s(self) -> float:
        """Return the pace at rest. Spread out, so that a hundred members are not all asked in the same
        moment."""
        return (REMINDER_S if self._notified else IDLE_S) * self._chance.uniform(0.8, 1.2)

    def _grown(self, partition: PartitionId, least_s: float, most_s: float) -> float:
        now = asyncio.get_running_loop().time()
        quiet_s = now - self._since.setdefault(partition, now)
        return min(max(QUIET_SHARE * quiet_s, least_s), most_s)
