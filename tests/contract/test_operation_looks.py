"""How often the keeper reads the zone of an operation, over each metastore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import Node
from rebalance.controllers import operation_keeper
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.core.admission import Limits
from rebalance.core.keys import Keyspace
from rebalance.core.operation import OperationState
from rebalance.core.records import NodeRecord
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.memory import MemoryMetastore
from rebalance.ports.metastore import Metastore, Snapshot
from tests.admission_world import DEADLINE_S, IDS, NODES, ZONES
from tests.conftest import EtcdServer
from tests.operation_groups import OperationsWorld


@pytest.fixture(params=["etcd", "memory"])
async def store(request: pytest.FixtureRequest, etcd_server: EtcdServer) -> AsyncIterator[Metastore]:
    opened: Metastore = EtcdMetastore([etcd_server.endpoint]) if request.param == "etcd" else MemoryMetastore()
    yield opened
    await opened.close()


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    made = OperationsWorld(store, keyspace)
    for node in NODES:
        await made.put(keyspace.node(node.name), NodeRecord(node, "i", 1).encode())
    await made.publish(*ZONES)
    async with made.controllers() as controllers:
        assert await controllers.zones.reconcile(IDS) == {}
    await made.found()
    return made


class CountingMetastore:
    """Counts the ranges that are read."""

    def __init__(self, store: Metastore) -> None:
        self.store, self.ranges = store, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    async def range(self, prefix: str) -> Snapshot:
        self.ranges += 1
        return await self.store.range(prefix)


async def test_a_zone_in_which_nothing_happens_is_not_read(
    world: OperationsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation may wait for days; what then changes is seen: a member's record, a limit, a cancel."""
    monkeypatch.setattr(operation_keeper, "LOOK_S", 0.02)
    limits = Limits()
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        counting = CountingMetastore(world.store)
        keeper = OperationKeeper(counting, world.keyspace, WallClock(), lambda: limits)
        tasks = [asyncio.create_task(keeper.follow()), asyncio.create_task(keeper.run())]

        async def quiet() -> None:
            async with asyncio.timeout(DEADLINE_S):
                before = -1
                while counting.ranges != before:
                    before = counting.ranges
                    await asyncio.sleep(0.3)

        await quiet()
        before = counting.ranges
        await world.put(world.keyspace.node("n9"), NodeRecord(Node("n9"), "i", 1).encode())
        await quiet()
        assert counting.ranges > before
        before = counting.ranges
        limits = Limits(operation_s=1_000_000)
        async with asyncio.timeout(DEADLINE_S):
            while counting.ranges < before + 10:
                await asyncio.sleep(0.01)
        limits = Limits()
        await quiet()
        await world.end_moves()
        async with asyncio.timeout(DEADLINE_S):
            while (await world.newest()).state is not OperationState.DONE:
                await asyncio.sleep(0.01)
        assert (await world.newest()).operation_id == operation.operation_id
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
