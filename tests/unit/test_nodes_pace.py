"""Pace of looks at a partition: soon after something happened, then less and less often."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.nodes.pace import IDLE_S, REMINDER_S, Awaited, Pace
from simulator.control.virtual_time import run_virtually

P0, P1 = PartitionId(ZoneId(1), 0), PartitionId(ZoneId(1), 1)


def over_time(pause_s: Callable[[Pace], float], seconds: int, *, notified: bool = False) -> list[float]:
    async def main() -> list[float]:
        pace = Pace(random.Random(1), notified=notified)
        pace.stirred(P0)
        found = []
        for _ in range(seconds):
            found.append(pause_s(pace))
            await asyncio.sleep(1.0)
        pace.stirred(P1)
        found.append(pause_s(pace))
        pace.stirred(P0)
        found.append(pause_s(pace))
        return found

    return run_virtually(main())


def test_pauses_grow_while_nothing_happens_and_are_short_again_at_once() -> None:
    *quiet, other, stirred = over_time(lambda pace: pace.pause_s(Awaited.FOLLOWING, P0), 20)
    assert quiet == sorted(quiet)
    assert (quiet[0], quiet[-1]) == Awaited.FOLLOWING.value[:2]
    assert other == Awaited.FOLLOWING.value[1], "what happens to another partition says nothing"
    assert stirred == Awaited.FOLLOWING.value[0]


def test_a_leader_that_changes_its_group_looks_sooner_than_a_follower() -> None:
    quiet = over_time(lambda pace: pace.pause_s(Awaited.CHANGING, P0), 20)
    assert (quiet[0], max(quiet)) == Awaited.CHANGING.value[:2]


def test_members_at_rest_are_not_all_looked_at_in_one_moment() -> None:
    pauses = over_time(lambda pace: pace.idle_s(), 20)
    assert len(set(pauses)) == len(pauses)
    assert all(0.8 * IDLE_S <= each <= 1.2 * IDLE_S for each in pauses)


def test_who_is_told_of_changes_hardly_looks() -> None:
    assert set(over_time(lambda pace: pace.pause_s(Awaited.FOLLOWING, P0), 5, notified=True)) == {REMINDER_S}
    # A member without a leader has to publish how far its copy goes after a while, notified or not.
    assert over_time(lambda pace: pace.pause_s(Awaited.LEADERLESS, P0), 1, notified=True)[0] == IDLE_S
