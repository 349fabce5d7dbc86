"""A member whose log is damaged or gone, with real members: made anew once by its node, then left to an
operator."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.records import MemberRecord, MemberState, RestartRecord
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.survivors import P0, founded


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def flip_log(directory: Path) -> None:
    """Nine bytes in the middle of what the node's only member has written."""
    (log,) = directory.glob("members/*/data/member/wal/*-*.wal")
    data = bytearray(log.read_bytes())
    middle = len(data.rstrip(b"\0")) // 2
    for at in range(middle, middle + 9):
        data[at] ^= 0xFF
    log.write_bytes(data)


async def test_a_damaged_copy_is_made_anew_once(cluster: NodeCluster) -> None:
    """Another member takes its place, with every acknowledged value, and the group takes writes all the time. A
    second time within the day it stays as it is, also when its node starts anew, and says what to do; a restart
    with clean-up makes it anew then."""
    await founded(cluster, "n1", "n2", "n3")
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 100)
        before = cluster.record(P0, "n2")
        assert before is not None
        await cluster.stop("n2")
        flip_log(cluster.directory / "n2")
        cluster.start("n2")

        def is_another() -> bool:
            now = cluster.record(P0, "n2")
            return now is not None and now.peer_url not in ("", before.peer_url)

        await cluster.until(is_another)
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await writer.check()
    repaired = cluster.record(P0, "n2")
    assert repaired is not None
    await cluster.stop("n2")
    flip_log(cluster.directory / "n2")
    for _ in range(2):
        cluster.start("n2")

        def is_left_alone() -> bool:
            now = cluster.record(P0, "n2")
            failed = now is not None and now.state is MemberState.FAILED
            return failed and now is not None and cause_of(now.reason) is Cause.COPY_DAMAGED

        await cluster.until(is_left_alone)
        left = cluster.record(P0, "n2")
        assert left is not None
        assert left.peer_url == repaired.peer_url
        assert "already: check the disk, then `zonectl recovery restart --cleanup`" in left.reason
        await cluster.router.put(P0, "during", b"1", "op-during")
        if _ == 0:
            await cluster.stop("n2")
    await cluster.put(cluster.keyspace.restart(P0, "n2"), RestartRecord(cleanup=True).encode())
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await writer.check()


async def test_a_copy_whose_data_is_gone_is_made_anew(cluster: NodeCluster) -> None:
    """Remove a copy's log on one node, then all of its directory on another; the group takes writes all the
    time."""
    await founded(cluster, "n1", "n2", "n3")
    async with writing(cluster, P0) as writer:
        for name, lost in (("n2", "members/*/data"), ("n3", "members")):
            await cluster.until(lambda: len(writer.written) > 100)
            before = cluster.record(P0, name)
            await cluster.stop(name)
            for directory in list((cluster.directory / name).glob(lost)):
                shutil.rmtree(directory)
            cluster.start(name)

            def is_another(name: str = name, before: MemberRecord | None = before) -> bool:
                now = cluster.record(P0, name)
                return now is not None and before is not None and now.peer_url not in ("", before.peer_url)

            await cluster.until(is_another)
            await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await writer.check()
