"""Whole controllers over the metastore in memory: bursts of events, and a metastore that lost every lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.core.zone import Node
from rebalance.controllers.clock import Clocks
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.core.topology.node_presence import NO_HOLD, HoldRule, Topology
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.placement import PlacementRequest, PlacementResult
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.timer_world import ZONE, TimerWorld

KEYS = Keyspace()


class CountingEngine(LocalPlacementEngine):
    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[int] = []

    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        self.jobs.append(len(batch))
        return await super().place(batch)


@asynccontextmanager
async def leading(
    world: TimerWorld, engine: LocalPlacementEngine
) -> AsyncIterator[Callable[[Callable[[Topology, tuple[str, ...]], bool]], asyncio.Future[None]]]:
    """A controller whose clock runs ten times as fast; yields how to wait for a topology and data nodes."""
    mirror = KeyspaceMirror(world.store, KEYS.prefix)
    rules = ControllerRules("one", 2, world.hold)
    runtime = ControllerRuntime(world.store, KEYS, engine, rules, clocks=Clocks(world.clock))

    async def tick() -> None:
        while True:
            world.clock.set(world.clock.ms + 50)
            await asyncio.sleep(0.005)

    def reached(wanted: Callable[[Topology, tuple[str, ...]], bool]) -> bool:
        topology, nodes = mirror.value(KEYS.topology), mirror.value(KEYS.data_nodes(ZONE.zone_id))
        if topology is None or nodes is None:
            return False
        return wanted(Topology.decode(topology), DataNodes.decode(nodes).nodes)

    async def until(wanted: Callable[[Topology, tuple[str, ...]], bool]) -> None:
        assert await mirror.wait_until(lambda: reached(wanted), 60)

    tasks = [asyncio.create_task(each) for each in (mirror.run(), runtime.run(), tick())]
    try:
        yield lambda wanted: asyncio.ensure_future(until(wanted))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.row("IEP-040")
async def test_a_burst_of_joins_is_one_placement_job() -> None:
    """IEP-040: ten nodes that join together are recorded once and placed once."""
    world = TimerWorld(MemoryMetastore(), KEYS, NO_HOLD)
    await world.join("A")
    await world.publish(replace(ZONE, replicas=3))
    engine = CountingEngine()
    async with leading(world, engine) as until:
        await until(lambda _, nodes: nodes == ("A",))
        for number in range(10):
            await world.join(f"n{number}")
        await until(lambda _, nodes: len(nodes) == 11)
        await world.publish(replace(ZONE, replicas=2))
        while len(engine.jobs) < 3:
            await asyncio.sleep(0.005)
    assert engine.jobs == [1, 1, 1]
    assert (await world.topology()).version == 2


async def test_every_lease_lost_and_back_moves_nothing() -> None:
    """All nodes register again within the grace period, each as it was: none has left, nothing is written."""
    world = TimerWorld(MemoryMetastore(), KEYS, HoldRule(5_000, 3_600_000))
    for name in "ABC":
        record = NodeRecord(Node(name), "same")
        await world.store.commit(Txn((), (Put(KEYS.node(name), record.encode()),)))
    await world.publish(replace(ZONE, auto_scale_down=0))
    async with leading(world, LocalPlacementEngine()) as until:
        await until(lambda _, nodes: nodes == ("A", "B", "C"))
        await world.leave("A", "B", "C")
        await until(lambda topology, _: topology.hold_until_ms is not None)
        for name in "ABC":
            record = NodeRecord(Node(name), "same")
            await world.store.commit(Txn((), (Put(KEYS.node(name), record.encode()),)))
        await until(lambda topology, _: topology.hold_until_ms is None)
        # One that really leaves shows that events are acted on again.
        await world.leave("C")
        await until(lambda _, nodes: nodes == ("A", "B"))
    history, key = await world.history_key()
    assert [each.nodes for each in history.entries] == [("A", "B", "C"), ("A", "B")]
    assert key.version == 2
    topology = await world.topology()
    assert [(each.kind.value, each.node) for each in topology.events[3:]] == [("LEFT", "C")]


@pytest.mark.row("I3-061")
async def test_after_a_silence_not_even_one_node_has_left() -> None:
    """I3-061: a store that did not answer for longer than half a lease, and then shows a node less."""
    store = MemoryMetastore()
    world = TimerWorld(store, KEYS, HoldRule(lease_ms=200, grace_ms=3_600_000))
    for name in "ABC":
        await world.join(name)
    await world.publish(replace(ZONE, auto_scale_down=0))
    async with leading(world, LocalPlacementEngine()) as until:
        await until(lambda _, nodes: nodes == ("A", "B", "C"))
        store.pause()
        await asyncio.sleep(0.3)
        store.resume()
        await world.leave("C")
        await until(lambda topology, _: topology.hold_until_ms is not None)
    topology = await world.topology()
    assert [each.node.name for each in topology.nodes if each.missing_ms is not None] == ["C"]
    assert [each.kind.value for each in topology.events] == ["JOINED"] * 3
