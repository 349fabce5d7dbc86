"""A copy that does not succeed, with real members: told as failed after its attempts, and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits
from rebalance.core.keys import PartitionId
from rebalance.core.move_status import COPY_FAILED
from tests.integration.test_node_cluster import QUICK, NodeCluster, node_cluster

P0 = PartitionId(ZoneId(7), 0)
IMPATIENT = replace(QUICK, catch_up_timeout_s=0.5)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def frozen_member(cluster: NodeCluster, name: str) -> psutil.Process:
    """The node's member, stopped as soon as its process is there."""
    below = str(cluster.directory / name)
    while True:
        for process in psutil.Process().children(recursive=True):
            try:
                if any(below in word for word in process.cmdline()):
                    process.suspend()
                    return process
            except psutil.NoSuchProcess:
                continue
        await asyncio.sleep(0.01)


def reason(cluster: NodeCluster) -> str:
    found = cluster.configuration(P0)
    return found.reason if found is not None else ""


async def test_a_copy_that_fails_is_told_and_tried_again(cluster: NodeCluster) -> None:
    """VOL-098, I3-052: the new member hangs, while its node lives: after two attempts the reason says so, and
    the group goes on taking writes. The member is well again and the limits are written: the move ends."""
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    cluster.start("n1", "n2", tuning=IMPATIENT)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    async with asyncio.timeout(30):
        freezing = asyncio.create_task(frozen_member(cluster, "n2"))
        await cluster.write_pending(P0, "n1", "n2")
        member = await freezing
    try:
        await cluster.until(lambda: reason(cluster).startswith(COPY_FAILED))
        assert reason(cluster).startswith(f"{COPY_FAILED}: 2 attempts: MEMBER_NOT_STARTED: n2")
        await cluster.router.put(P0, "k", b"v", "id-1")
    finally:
        member.resume()
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    assert reason(cluster) == ""
