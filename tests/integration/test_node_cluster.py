"""Several node agents over one real etcd as metastore, with real members: the base of the other node tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import NodeRecord
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.puts import is_applied_once


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


P0 = PartitionId(ZoneId(7), 0)


async def test_a_node_is_registered_while_it_runs(cluster: NodeCluster) -> None:
    """A node's key holds its incarnation and goes when the node stops."""
    cluster.start("n1")
    key = cluster.keyspace.node("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is not None)
    first = NodeRecord.decode(cluster.mirrors.nodes.value(key) or b"")
    assert first.node == Node("n1")
    await cluster.stop("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is None)
    cluster.start("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is not None)
    second = NodeRecord.decode(cluster.mirrors.nodes.value(key) or b"")
    assert second.incarnation != first.incarnation


@pytest.mark.row("I3-027")
async def test_stable_founds_a_group_once_all_members_are_reserved(cluster: NodeCluster) -> None:
    """I3-027: members start exactly on the nodes of stable; the group is founded by the ``group`` key."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: "n3" in getattr(cluster.record(P0, "n1"), "reason", ""))
    assert cluster.mirrors.partitions.get(cluster.keyspace.partition(P0).group) is None
    cluster.start("n3", "n4")
    took_s = await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    print(f"3 members founded in {took_s:.2f} s")
    assert P0 not in cluster.nodes["n4"].host.partitions()
    assert is_applied_once(await cluster.router.put(P0, "k", b"v", "id-1"))
    assert (await cluster.router.put(P0, "k", b"other", "id-1")).repeated
    assert (await cluster.router.get(P0, "k")).value == b"v"
