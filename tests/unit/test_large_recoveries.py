"""Resets of zones with many partitions: others have the event loop in between, and few members are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from rebalance.controllers.recovery import CALLS_AT_ONCE, PartitionRecovery
from rebalance.controllers.zone_reading import PARTITIONS_PER_SLICE
from rebalance.core.keyspace.keys import PartitionId
from tests.fixtures.large_zone import world_of

PARTITIONS = 10 * PARTITIONS_PER_SLICE


class SlowProbe:
    """Probe that finds no member serving, after ``turns`` of the event loop; None: it never answers."""

    def __init__(self, turns: int | None) -> None:
        self._turns = turns
        self.asked: set[int] = set()
        self.running = self.most = 0

    async def serving(self, partition: PartitionId, client_urls: Mapping[str, str]) -> str:
        self.asked.add(partition.partition)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self._turns is None:
                await asyncio.Event().wait()
            for _ in range(self._turns or 0):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        return ""


async def test_others_have_the_loop_between_slices() -> None:
    """Neither the metastore nor the probe lets anybody else have a turn here: only the planning does."""
    world = await world_of(PARTITIONS, 3)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    resets = await world.recovery.reset(world.intent().zone, dry_run=True)
    counting.cancel()
    assert [each.partition for each in resets] == [0, 1, 2]
    # Once while it is looked whether they are idle, once while they are planned.
    assert turns >= 2 * PARTITIONS / PARTITIONS_PER_SLICE


@pytest.mark.row("R1")
async def test_only_members_of_what_would_be_reset_are_asked() -> None:
    """R1, for a bounded number of partitions at once."""
    lost = CALLS_AT_ONCE + 40
    world = await world_of(2 * lost, lost)
    probe = SlowProbe(3)
    recovery = PartitionRecovery(world.store, world.keyspace, probe)
    resets = await recovery.reset(world.intent().zone, dry_run=True)
    assert {each.partition for each in resets} == probe.asked == set(range(lost))
    assert probe.most == CALLS_AT_ONCE


@pytest.mark.row("R1")
async def test_what_could_not_be_asked_in_time_is_not_reset() -> None:
    """R1: it is not known whether these groups serve."""
    world = await world_of(4, 2)
    recovery = PartitionRecovery(world.store, world.keyspace, SlowProbe(None), asking_s=0.05)
    resets = await recovery.reset(world.intent().zone, dry_run=True)
    assert [each.plan for each in resets] == [None, None]
    (kind,) = {each.refusal.kind for each in resets if each.refusal is not None}
    assert kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    assert all(each.refusal and "not asked within 0.05 s" in each.refusal.message for each in resets)


async def test_a_dry_run_tells_each_refusal_to_who_wants_them_all() -> None:
    """Named partitions: with their copies, also of what needs no reset. Else the first refusal is raised."""
    world = await world_of(4, 2)
    zone = world.intent().zone
    lost, whole = await world.recovery.reset(zone, (1, 3), dry_run=True, tells_refusals=True)
    assert lost.plan is not None
    assert whole.refusal is not None
    assert whole.refusal.kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert [len(lost.candidates), len(whole.candidates)] == [1, 3]
    for dry_run, tells_refusals in ((True, False), (False, True)):
        with pytest.raises(RefusedError, match="partition 3: 3 of 3 voters are alive"):
            await world.recovery.reset(zone, (1, 3), dry_run=dry_run, tells_refusals=tells_refusals)
