"""A copy that does not succeed, with real members: told as failed after its attempts, and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from tests.fixtures.frozen_members import IMPATIENT, frozen_member, with_a_member_that_freezes
from tests.fixtures.node_cluster import NodeCluster, node_cluster

P0 = PartitionId(ZoneId(7), 0)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def reason(cluster: NodeCluster) -> str:
    found = cluster.configuration(P0)
    return found.reason if found is not None else ""


@pytest.mark.row("VOL-098")
async def test_a_copy_that_fails_is_told_and_tried_again(cluster: NodeCluster) -> None:
    """VOL-098: the new member hangs, while its node lives: after two attempts the reason says so, and
    the group goes on taking writes. The member is well again and the limits are written: the move ends."""
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    cluster.start("n1", "n2", tuning=IMPATIENT)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await with_a_member_that_freezes(cluster, "n2")
    await cluster.write_pending(P0, "n1", "n2")
    async with asyncio.timeout(60):
        member = await frozen_member(cluster, "n2")
    try:
        told = Cause.COPY_FAILED.text("2 attempts: MEMBER_NOT_STARTED: n2")
        await cluster.until(lambda: reason(cluster).startswith(told))
        await cluster.router.put(P0, "k", b"v", "id-1")
    finally:
        member.resume()
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2") and reason(cluster) == "")
