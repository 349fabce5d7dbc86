"""A node that starts while the metastore is away, with real members."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catalog.core.zone import ConsistencyMode, Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.keys import PartitionId
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.node_processes import members_below
from tests.fixtures.puts import is_applied_once

MODES = {7: ConsistencyMode.STRONG_CONSISTENCY, 8: ConsistencyMode.HIGH_AVAILABILITY}
STRONG, AVAILABLE = (PartitionId(ZoneId(zone), 0) for zone in MODES)


@pytest.fixture
async def cluster(own_etcd, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as running:
        yield running


def runs(directory: Path, partition: PartitionId) -> bool:
    name = f"{partition.zone_id}-{partition.partition}"
    return any(f"/{name}/" in " ".join(each.cmdline()) for each in members_below(directory))


async def founded(cluster: NodeCluster) -> None:
    """A partition of each mode, on one node, which has heard of both zones."""
    for number, mode in MODES.items():
        zone = Zone(ZoneId(number), f"Z{number}", 1, 1, None, ("default",), consistency_mode=mode)
        await cluster.put(cluster.keyspace.intent(zone.zone_id), ZoneIntent(1, zone).encode())
    cluster.start("n1")
    for partition in (STRONG, AVAILABLE):
        await cluster.write_stable(partition, "n1")
        await cluster.until(lambda partition=partition: cluster.settled(partition, "n1"))
        await cluster.router.put(partition, "k", b"1", "op-1")
    note = cluster.directory / "n1" / "strong_zones.json"
    async with asyncio.timeout(60):
        while not (note.exists() and json.loads(note.read_text())["zones"] == [7]):
            await asyncio.sleep(0.02)
    await cluster.stop("n1")


async def seen_running(directory: Path, seconds: float) -> set[PartitionId]:
    """Partitions whose members ran at some moment of that time."""
    seen: set[PartitionId] = set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                seen |= {each for each in (STRONG, AVAILABLE) if runs(directory, each)}
                await asyncio.sleep(0.1)
    return seen


@pytest.mark.parametrize("vouched", [False, True])
async def test_members_wait_for_the_metastore(cluster: NodeCluster, own_etcd, *, vouched: bool) -> None:
    """Start members only once the metastore can tell whether a group was founded anew without this node. One
    for which the operator vouches runs before; in a zone of HIGH_AVAILABILITY it never does. Once the metastore
    is back everything runs, with its data."""
    await founded(cluster)
    own_etcd.kill()
    cluster.start("n1", start_without_metastore=vouched)
    running = await seen_running(cluster.directory / "n1", 8.0)
    assert running == ({STRONG} if vouched else set())
    own_etcd.restart()
    for partition in (STRONG, AVAILABLE):
        await cluster.until(lambda partition=partition: runs(cluster.directory / "n1", partition))
        assert (await cluster.router.get(partition, "k", limit_s=60.0)).value == b"1"
        assert is_applied_once(await cluster.router.put(partition, "k", b"2", "op-2"))
