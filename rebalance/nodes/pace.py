"""Pace at which an agent looks again at a partition at which nothing has happened.

Keys that change bring a partition up at once. A member changes without a key: its process ends, its group
elects another leader. So it is looked at now and then: soon after something has happened to the partition,
since more often follows, and the longer nothing does the more seldom. A host that tells of each change
(``NodeAgent.notice``) needs no looks; those that remain are a reminder.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum

from rebalance.core.keyspace.keys import PartitionId

QUIET_SHARE = 0.125
"""A pause between two looks is this share of the time for which nothing has happened."""
IDLE_S = 1.5
REMINDER_S = 30.0


class Awaited(Enum):
    """Reason for the next look: the shortest and the longest pause, and the one of an agent that is notified,
    in seconds. Beside a leader with a change joiners' absence is measured meanwhile, so that one looks soon."""

    FOLLOWING = (0.15, 1.0, REMINDER_S)  # beside a member that does not lead, while its group is to change
    STARTING = (0.1, 0.5, IDLE_S)  # a process answers
    COPYING = (0.2, 1.0, REMINDER_S)  # a mirror has its first copy
    CHANGING = (0.1, 0.5, 1.0)  # beside a leader whose change runs
    BLOCKED = (0.5, 1.0, 1.0)  # beside a leader whose change cannot begin
    LEADERLESS = (IDLE_S, IDLE_S, IDLE_S)  # beside a member without a leader: its position is published


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

    def pause_s(self, awaited: Awaited, partition: PartitionId) -> float:
        """Return the pause until the next look at a partition that waits."""
        least_s, most_s, notified_s = awaited.value
        if self._notified:
            return notified_s
        now = asyncio.get_running_loop().time()
        quiet_s = now - self._since.setdefault(partition, now)
        return min(max(QUIET_SHARE * quiet_s, least_s), most_s)

    def idle_s(self) -> float:
        """Return the pace at rest. Spread out, so that a hundred members are not all asked in the same
        moment."""
        return (REMINDER_S if self._notified else IDLE_S) * self._chance.uniform(0.8, 1.2)
