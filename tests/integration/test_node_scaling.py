"""Zones that follow their nodes, end to end without SQL: controllers, a real metastore, real members and
data."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aetcd import rpc

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.core.topology.node_presence import HoldRule
from rebalance.groups.calls.data_client import DATUM_PREFIX
from rebalance.groups.calls.etcd_api import open_channel
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.node_processes import node_process

ZONE = ZoneId(5)
PARTITIONS = [PartitionId(ZONE, number) for number in range(2)]
LONG_S = 600
"""Seconds of a timer that outlasts what is to be seen meanwhile, however slow the machine is; then the zone
gets a short one."""


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@asynccontextmanager
async def controlled(cluster: NodeCluster, zone: Zone) -> AsyncIterator[None]:
    """A controller that leads, and the zone's intent."""
    metastore, engine = EtcdMetastore([cluster.endpoint]), LocalPlacementEngine()
    rules = ControllerRules("one", 2, HoldRule(500, 1_000))
    runtime = ControllerRuntime(metastore, cluster.keyspace, engine, rules)
    running = asyncio.create_task(runtime.run())
    await cluster.put(cluster.keyspace.intent(zone.zone_id), ZoneIntent(1, zone).encode())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await engine.close()
        await metastore.close()


async def data_nodes(cluster: NodeCluster) -> tuple[str, ...]:
    found = await cluster.metastore.get(cluster.keyspace.data_nodes(ZONE))
    return DataNodes.decode(found.value).nodes if found else ()


async def local_copy(cluster: NodeCluster, partition: PartitionId, name: str) -> dict[bytes, bytes]:
    """Data of the member on a node by itself, without asking its group."""
    record = cluster.record(partition, name)
    assert record is not None
    channel = open_channel(record.client_url)
    try:
        request = rpc.RangeRequest(key=DATUM_PREFIX, range_end=b"d0", serializable=True)
        reply = await rpc.KVStub(channel).Range(request, timeout=30)
    finally:
        await channel.close()
    return {pair.key.removeprefix(DATUM_PREFIX): pair.value for pair in reply.kvs}


async def until_copied(cluster: NodeCluster, partition: PartitionId, name: str) -> None:
    """A member may vote a moment before it has applied the last of what was written."""
    async with asyncio.timeout(60):
        while (await local_copy(cluster, partition, name)).get(b"early") != b"1":
            await asyncio.sleep(0.05)


def all_settled(cluster: NodeCluster, *peers: str) -> bool:
    return all(cluster.settled(partition, *peers) for partition in PARTITIONS)


@pytest.mark.row("IEP-039", "IEP-040", "IEP-042", "IEP-045")
@pytest.mark.parametrize("ending", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
async def test_a_node_joins_and_goes_again(cluster: NodeCluster, ending: signal.Signals) -> None:
    """IEP-039, IEP-040, IEP-042, IEP-045: a joined node gets replicas with their data; one that stops or dies
    keeps its place for the zone's time, then the others go on without it. No put fails."""
    zone = Zone(ZONE, "Z", len(PARTITIONS), 3, None, ("default",), auto_scale_down=LONG_S)
    cluster.start("n1", "n2")
    async with controlled(cluster, zone):
        await cluster.until(lambda: all_settled(cluster, "n1", "n2"))
        for partition in PARTITIONS:
            await cluster.router.put(partition, "early", b"1", f"early-{partition}")
        async with writing(cluster, PARTITIONS[0]) as writer:
            process = node_process(cluster, "n3")
            try:
                await cluster.until(lambda: all_settled(cluster, "n1", "n2", "n3"))
                assert await data_nodes(cluster) == ("n1", "n2", "n3")
                for partition in PARTITIONS:
                    await until_copied(cluster, partition, "n3")
            finally:
                process.send_signal(ending)
                # The others renew their leases in this loop meanwhile.
                await asyncio.to_thread(process.wait, 60)
            gone = cluster.keyspace.node("n3")
            await cluster.until(lambda: cluster.mirrors.nodes.get(gone) is None)
            await asyncio.sleep(1.0)
            assert await data_nodes(cluster) == ("n1", "n2", "n3")
            altered = ZoneIntent(2, replace(zone, auto_scale_down=1))
            await cluster.put(cluster.keyspace.intent(ZONE), altered.encode())
            await cluster.until(lambda: all_settled(cluster, "n1", "n2"))
            assert await data_nodes(cluster) == ("n1", "n2")
        await writer.check()
