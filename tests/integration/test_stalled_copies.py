"""A joiner whose node lives and whose process runs, and to which nothing comes: it is named and never given up
(M3). Real members; the process is stopped by SIGSTOP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import MoveState, PartitionView, partition_status
from tests.fixtures.group_hosts import etcd_processes
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(16), 0)
JOINER_S = 3
NODES = ("n1", "n2")


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def stopped(cluster: NodeCluster, name: str) -> psutil.Process:
    """The node's member, as soon as there is a process."""
    async with asyncio.timeout(60):
        while not (found := etcd_processes(cluster.directory / name / "members")):
            await asyncio.sleep(0.005)
    found[0].suspend()
    return found[0]


def cause(cluster: NodeCluster) -> tuple[MoveState, str]:
    """State and cause of the partition, as servers report it."""
    keys = cluster.keyspace.partition(P0)
    stable, pending = (cluster.mirrors.partitions.value(each) for each in (keys.stable, keys.pending))
    assert stable is not None
    view = PartitionView(
        target=Assignments(NODES),
        stable=Assignments.decode(stable),
        pending=Assignments.decode(pending) if pending is not None else None,
        planned=None,
        processed=True,
        members={name: record for name in NODES if (record := cluster.record(P0, name)) is not None},
        configuration=cluster.configuration(P0),
    )
    status = partition_status(view, frozenset(NODES))
    return status.state, status.cause


@pytest.mark.row("M3")
async def test_a_copy_that_stands_still_is_named_and_not_given_up(cluster: NodeCluster) -> None:
    """M3: the cause is COPY_STALLED after the joiner's time-out, for as long as it stands still; several
    time-outs later the move is the same. It goes when the copy goes on."""
    await cluster.put(cluster.keyspace.limits, Limits(joiner_s=JOINER_S).encode())
    cluster.start(*NODES)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    async with writing(cluster, P0) as writer:
        await cluster.write_pending(P0, *NODES)
        process = await stopped(cluster, "n2")
        stalled = (MoveState.WAITING, "COPY_STALLED: n2")
        took_s = await cluster.until(lambda: cause(cluster) == stalled)
        print(f"it is said after {took_s:.1f} s")
        await asyncio.sleep(3 * JOINER_S)
        assert cause(cluster) == stalled
        assert await cluster.metastore.get(cluster.keyspace.given_up(P0)) is None
        process.resume()
        await cluster.until(lambda: cluster.settled(P0, *NODES))
    await cluster.until(lambda: cause(cluster) == (MoveState.DONE, ""))
    await cluster.until(lambda: getattr(cluster.record(P0, "n2"), "copied", None) == 0)
    await writer.check()
