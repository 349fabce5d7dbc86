"""The strategies ``update`` and ``cancel`` with real members."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments, Strategy
from rebalance.core.keys import PartitionId
from tests.integration.test_node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(9), 0)
LOCKING = [Strategy.UPDATE, Strategy.CANCEL]


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.mark.parametrize("strategy", LOCKING)
async def test_moves_under_a_lock(cluster: NodeCluster, strategy: Strategy) -> None:
    """I3A-004, I3A-014, I3A-019: moves with a new leader, under a writer; no lock is left at the end."""
    lock = cluster.keyspace.partition(P0).lock
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    seen = 0
    async with writing(cluster, P0) as writer:
        for target in (("n1", "n2"), ("n2", "n3")):
            await cluster.write_pending(P0, *target, strategy=strategy)
            await cluster.until(lambda: cluster.mirrors.partitions.get(lock) is not None)
            seen += 1
            await cluster.until(lambda target=target: cluster.settled(P0, *target))
            assert await cluster.metastore.get(lock) is None
    assert seen == 2
    await writer.check()


async def test_a_move_that_cannot_begin_is_cancelled_for_the_planned_one(cluster: NodeCluster) -> None:
    """I3A-003, I3A-022, I3A-025, I3A-027: pending waits for a node that does not exist; planned takes its place
    by itself."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.write_pending(P0, "n1", "n9", strategy=Strategy.CANCEL)
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", "") == "NODE_DOWN: n9")
    await cluster.put(
        cluster.keyspace.partition(P0).planned, Assignments(("n1", "n2"), strategy=Strategy.CANCEL).encode()
    )
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
