"""Automatic resets that have to wait, as they are shown (H1, H2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits, utc
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.txn import Delete, Txn
from rebalance.core.topology.fencing import FenceRecord
from rebalance.core.topology.node_presence import Topology
from tests.unit.sql_world import DEFAULT_NODES, World, opened

LEFT_MS = 1_800_000_000_000
LOST = "NO_MAJORITY: n2, n3"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two zones of one partition on three nodes, of which two have left; the second zone helps itself."""
    async with opened(tmp_path) as made:
        for name, options in (("strong", ""), ("available", ", CONSISTENCY MODE 'HIGH_AVAILABILITY'")):
            created = await made.run(f"CREATE ZONE {name} (PARTITIONS 1, REPLICAS 3{options})")
            assert created.zone_id is not None
            await made.serve(created.zone_id, 1)
        topology = Topology.of(DEFAULT_NODES)
        nodes = tuple(
            replace(each, incarnation="i", left_ms=LEFT_MS if each.node.name != "n1" else None)
            for each in topology.nodes
        )
        await made.put(made.keyspace.topology, replace(topology, nodes=nodes).encode())
        for name in ("n2", "n3"):
            await made.metastore.commit(Txn((), (Delete(made.keyspace.node(name)),)))
            await made.put(made.keyspace.fence(name), FenceRecord("i", 6_000).encode())
        await made.settle()
        yield made


async def causes(world: World) -> list[str]:
    await world.settle()
    shown = [row[4] for row in (await world.run("SHOW PARTITIONS")).rows]
    views = KeyspaceViews(world.mirror, world.keyspace)
    partitions = [views.partition(PartitionId(ZoneId(zone_id), 0)) for zone_id in (1, 2)]
    assert [each["status"]["cause"] for each in partitions] == shown
    return shown


async def test_when_a_partition_is_reset_is_shown(world: World) -> None:
    """The time stands beside the cause, for zones that help themselves, by the limits and by the fences of lost
    nodes."""
    assert await causes(world) == [LOST, f"{LOST}; automatic reset from {utc(LEFT_MS + 10_000)} on"]
    await world.put(world.keyspace.limits, Limits(ha_reset_s=60).encode())
    assert await causes(world) == [LOST, f"{LOST}; automatic reset from {utc(LEFT_MS + 60_000)} on"]
    await world.put(world.keyspace.fence("n3"), FenceRecord("i", 86_000).encode())
    assert await causes(world) == [LOST, f"{LOST}; automatic reset from {utc(LEFT_MS + 90_000)} on"]


@pytest.mark.parametrize("fence", [b"", FenceRecord("earlier", 6_000).encode(), b"?"])
async def test_who_cannot_be_taken_for_silent_is_named(world: World, fence: bytes) -> None:
    """The cause gives the way out as well."""
    name = world.keyspace.fence("n3")
    await world.metastore.commit(Txn((), (Delete(name),)))
    if fence:
        await world.put(name, fence)
    strong, available = await causes(world)
    assert strong == LOST
    assert available.startswith(f"{LOST}; NOT_FENCED: n3")
    assert available.endswith("may serve cut off; if dead, `zonectl recovery reset` is the way out")


async def test_limits_that_cannot_be_read_are_the_cause(world: World) -> None:
    await world.put(world.keyspace.limits, b"?")
    strong, available = await causes(world)
    assert strong == LOST
    assert available.startswith(f"{LOST}; RECORD_NOT_READABLE")
    assert "rebalance/limits" in available


async def test_a_partition_with_a_majority_waits_for_no_reset(world: World) -> None:
    await world.set_nodes(*DEFAULT_NODES[:2])
    assert [each.split(":")[0] for each in await causes(world)] == ["NODE_DOWN", "NODE_DOWN"]
