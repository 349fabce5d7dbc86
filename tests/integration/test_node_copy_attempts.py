"""A copy that does not succeed, with real members: told as failed after its attempts, and tried again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits
from rebalance.core.keys import PartitionId
from rebalance.core.move_status import COPY_FAILED
from rebalance.hosting.etcd_binary import find_etcd
from tests.integration.test_node_cluster import QUICK, NodeCluster, node_cluster

P0 = PartitionId(ZoneId(7), 0)
IMPATIENT = replace(QUICK, catch_up_timeout_s=0.5)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def with_a_member_that_freezes(cluster: NodeCluster, name: str) -> None:
    """The node's next member stops before its first step, once; nobody has to be quick to stop it."""
    await cluster.registered(name)
    mark, program = cluster.directory / "frozen", cluster.directory / "freezing-etcd"
    program.write_text(
        f'#!/bin/sh\ntest -e "{mark}" || {{ touch "{mark}"; kill -STOP $$; }}\nexec "{find_etcd().path}" "$@"\n'
    )
    program.chmod(0o755)
    cluster.nodes[name].host._binary = str(program)


async def frozen_member(cluster: NodeCluster, name: str) -> psutil.Process:
    """The node's member, once it has stopped."""
    below = str(cluster.directory / name)
    while True:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                is_stopped = process.status() == psutil.STATUS_STOPPED
                if is_stopped and any(below in word for word in process.cmdline()):
                    return process
        await asyncio.sleep(0.01)


def reason(cluster: NodeCluster) -> str:
    found = cluster.configuration(P0)
    return found.reason if found is not None else ""


@pytest.mark.row("VOL-098", shows="service")
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
        told = f"{COPY_FAILED}: 2 attempts: MEMBER_NOT_STARTED: n2"
        await cluster.until(lambda: reason(cluster).startswith(told))
        await cluster.router.put(P0, "k", b"v", "id-1")
    finally:
        member.resume()
    await cluster.put(cluster.keyspace.limits, Limits(copy_attempts=2).encode())
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2") and reason(cluster) == "")
