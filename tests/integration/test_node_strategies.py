"""The strategies ``update`` and ``cancel`` with real members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments, Strategy
from rebalance.core.keys import PartitionId
from rebalance.core.records import Stage
from rebalance.nodes.endpoints import MirroredEndpoints
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
    touched: list[int] = []

    def note(changed: frozenset[str]) -> None:
        """A lock lasts for a few milliseconds: its key is seen to change, not to be there."""
        if lock in changed:
            touched.append(cluster.mirrors.partitions.revision)

    cluster.mirrors.partitions.listen(note)
    async with writing(cluster, P0) as writer:
        for target in (("n1", "n2"), ("n2", "n3")):
            touched.clear()
            await cluster.write_pending(P0, *target, strategy=strategy)
            await cluster.until(lambda target=target: cluster.settled(P0, *target))
            assert touched
            assert await cluster.metastore.get(lock) is None
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


async def test_who_was_announced_as_leaving_stays_after_a_cancel(cluster: NodeCluster) -> None:
    """Told while the new member catches up, so that clients turn away in time; taken back when the move is
    given up, so that clients come back."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    source = MirroredEndpoints(cluster.mirrors)
    assert len(source.endpoints(P0)) == 3
    gate, host = asyncio.Event(), cluster.nodes["n4"].host
    join = host.join

    async def held_back(partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        await gate.wait()
        await join(partition, peers, generation)

    host.join = held_back
    # At rest the preferred primary comes to lead; it stays, so that this leader names who goes.
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    await cluster.write_pending(P0, "n1", "n4", strategy=Strategy.CANCEL)
    await cluster.until(lambda: getattr(cluster.configuration(P0), "stage", None) is Stage.CATCHING_UP)
    # One at a time, though two are to go.
    await cluster.until(lambda: len(source.endpoints(P0)) == 2)
    planned = Assignments(("n1", "n2", "n3"), strategy=Strategy.CANCEL)
    await cluster.put(cluster.keyspace.partition(P0).planned, planned.encode())
    await cluster.until(lambda: not cluster.has_pending(P0))
    gate.set()
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.until(lambda: len(source.endpoints(P0)) == 3)
