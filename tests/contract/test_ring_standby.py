"""The ring of the store servers as any server keeps it while no controller leads, over each metastore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rebalance.controllers.ring_events import RingStandby
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import MetastoreHistory
from tests.fixtures.ring_world import LIMIT_S, TTL_MS, RingWorld

SERVERS = ("n1", "n2", "n3")


class StandbyWorld(RingWorld):
    """Servers that stand by, over ``store``; the world's clock is theirs."""

    @asynccontextmanager
    async def standby(self) -> AsyncIterator[None]:
        mirror = KeyspaceMirror(self.store, self.keyspace.prefix)
        ring = RingReader(mirror, self.keyspace)
        standby = RingStandby(self.store, self.keyspace, mirror, ring, self.clock, TTL_MS)
        tasks = [asyncio.create_task(work()) for work in (mirror.run, standby.run)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def lead(self) -> None:
        await self.store.commit(Txn((), (Put(self.keyspace.controller_leader, b"c1"),)))

    async def lead_no_more(self) -> None:
        await self.store.commit(Txn((), (Delete(self.keyspace.controller_leader),)))

    async def time_passes(self, dead: str, *, ttls: int = 3) -> None:
        """All others beat meanwhile."""
        for _ in range(5 * ttls):
            self.clock.set(self.clock.now_ms() + TTL_MS // 5)
            for name in SERVERS:
                if name != dead and name in (await self.state()).incarnations:
                    await self.beat(name)
            await asyncio.sleep(0.3)


@pytest.fixture
def world(store: MetastoreHistory, keyspace: Keyspace) -> StandbyWorld:
    return StandbyWorld(store, keyspace)


async def test_who_died_is_failed_and_who_is_back_joins(world: StandbyWorld) -> None:
    """Two servers write each event once, as one would."""
    async with world.standby(), world.standby():
        await world.join(*SERVERS)
        failing = asyncio.create_task(world.time_passes("n3"))
        await world.until(lambda state: "n3" not in state.cluster.servers)
        await failing
        await world.beat("n3", "i2")
        state = await world.until(lambda state: state.incarnations.get("n3") == "i2")
    assert await world.events() == [
        *((Trigger.NODE_JOINED, name) for name in SERVERS),
        (Trigger.NODE_FAILED, "n3"),
        (Trigger.NODE_JOINED, "n3"),
    ]
    assert state.cluster.servers.keys() == set(SERVERS)


async def test_while_a_controller_leads_or_nothing_may_be_written_nobody_else_keeps_the_ring(
    world: StandbyWorld,
) -> None:
    """Clocks begin anew when nobody leads any more: nobody is failed for the time before."""
    async with world.control():
        await world.join(*SERVERS)
    await world.lead()
    async with world.standby():
        await world.time_passes("n3")
        assert await world.count(Trigger.NODE_FAILED) == 0
        await world.store.commit(Txn((), (Put(world.keyspace.epoch, EpochRecord(1, "they differ").encode()),)))
        await world.lead_no_more()
        await world.time_passes("n3")
        assert await world.count(Trigger.NODE_FAILED) == 0
        await world.store.commit(Txn((), (Put(world.keyspace.epoch, EpochRecord(1).encode()),)))
        async with asyncio.timeout(LIMIT_S):
            await world.until(lambda state: "n3" not in state.cluster.servers)
