"""Known scenarios of nodes and their members, over real groups; keys are written as controllers write them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.groups.files.reservations import Reservations
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import MemberLife
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing
from tests.fixtures.ports import free_block

P0 = PartitionId(ZoneId(7), 0)


@pytest.fixture
async def cluster(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def until_it_runs(cluster: NodeCluster, name: str) -> None:
    """Asked of the node itself: the record may be that of before it was stopped."""
    async with asyncio.timeout(60):
        while getattr(await cluster.nodes[name].host.status(P0), "life", None) is not MemberLife.RUNNING:
            await asyncio.sleep(0.05)


async def test_shrink_then_grow_with_the_same_nodes(cluster: NodeCluster) -> None:
    """S035: pending [n1, n2] with planned [n1, n2, n3] ends at all three. The other two members are never
    restarted; n3's is started anew, because etcd takes no removed member back under its identity."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    pids = {name: pid_of(cluster, name) for name in ("n1", "n2", "n3")}
    keys = cluster.keyspace.partition(P0)
    both = (
        Put(keys.pending, Assignments(("n1", "n2")).encode()),
        Put(keys.planned, Assignments(("n1", "n2", "n3")).encode()),
    )
    async with writing(cluster, P0) as writer:
        assert (await cluster.metastore.commit(Txn((), both))).succeeded
        await cluster.until(
            lambda: cluster.settled(P0, "n1", "n2", "n3") and pid_of(cluster, "n3") != pids["n3"]
        )
    await writer.check()
    assert cluster.mirrors.partitions.get(keys.planned) is None
    assert {name: pid_of(cluster, name) for name in ("n1", "n2")} == {name: pids[name] for name in ("n1", "n2")}


async def test_a_disjoint_move_takes_clients_along(cluster: NodeCluster) -> None:
    """S036, S037: while the new member's node is not there, clients know the old one; after the move only the
    new one, and no other node holds anything."""
    cluster.start("n1", "n3")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    source = MirroredEndpoints(cluster.mirrors)
    old = cluster.record(P0, "n1")
    assert old is not None
    await cluster.write_pending(P0, "n2")
    await cluster.router.put(P0, "k", b"v", "id-1")
    assert source.route(P0).voters == (old.client_url,)
    cluster.start("n2")
    await cluster.until(lambda: cluster.settled(P0, "n2"))
    new = cluster.record(P0, "n2")
    assert new is not None
    assert source.route(P0).voters == (new.client_url,)
    assert (await cluster.router.get(P0, "k")).value == b"v"
    await cluster.until(lambda: cluster.record(P0, "n1") is None)
    assert cluster.record(P0, "n3") is None


async def test_a_failed_destruction_is_done_again_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S097: the directory is renamed before it is deleted, so that what a crash or an error leaves is known to
    be of no use."""
    ports = free_block(4)
    reservations = Reservations(tmp_path, ports, "127.0.0.1")
    reservations.open()
    reservations.reserve(P0)
    reservations.data(P0).mkdir()
    (reservations.data(P0) / "log").write_bytes(b"old")
    doomed = reservations.forget(P0)
    assert doomed is not None
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_: None)
        shutil.rmtree(doomed)
    reservations.close()
    assert (doomed / "data" / "log").exists()
    again = Reservations(tmp_path, ports, "127.0.0.1")
    again.open()
    assert not doomed.exists()
    assert again.partitions() == frozenset()
    again.close()


async def test_a_node_that_missed_the_drop(cluster: NodeCluster) -> None:
    """S115: its member and data go when it comes back."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    await cluster.stop("n2")
    await cluster.drop(P0)
    await cluster.until(lambda: cluster.record(P0, "n1") is None)
    assert (cluster.directory / "n2" / "members" / "7-0").exists()
    cluster.start("n2")
    await cluster.until(lambda: cluster.record(P0, "n2") is None)
    await cluster.until(lambda: not (cluster.directory / "n2" / "members" / "7-0").exists())


async def test_a_node_of_stable_starts_its_member_under_an_ordinary_pending(cluster: NodeCluster) -> None:
    """S107: pending leaves it out and cannot go on, because a node is not there."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.stop("n3")
    await cluster.write_pending(P0, "n1", "n2", "n4")
    cluster.start("n3")
    await until_it_runs(cluster, "n3")
    assert cluster.has_pending(P0)
    await cluster.router.put(P0, "k", b"v", "id-1")


async def test_a_move_that_was_finished_while_a_node_was_down(cluster: NodeCluster) -> None:
    """S102: its return writes neither pending nor stable again."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    await cluster.stop("n3")
    await cluster.write_pending(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    stable = cluster.mirrors.partitions.get(cluster.keyspace.partition(P0).stable)
    cluster.start("n3")
    key = cluster.keyspace.node("n3")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is not None)
    await cluster.router.put(P0, "k", b"v", "id-1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    assert cluster.mirrors.partitions.get(cluster.keyspace.partition(P0).stable) == stable


@pytest.mark.parametrize("snapshot_count", [20, 100_000], ids=["by snapshot", "by log"])
async def test_a_new_member_has_the_old_data(cluster: NodeCluster, snapshot_count: int) -> None:
    """S109: whether the log that it needs is still there or not."""
    cluster.start("n1", "n2", "n3", tuning=replace(QUICK, snapshot_count=snapshot_count))
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    rounds = 100 if snapshot_count == 20 else 1

    async def write(key: int) -> None:
        """One after the other: the last one counts."""
        for number in range(rounds):
            await cluster.router.put(P0, f"k{key}", f"v{number}".encode(), f"id-{key}-{number}")

    await asyncio.gather(*map(write, range(60)))
    await cluster.write_pending(P0, "n3")
    await cluster.until(lambda: cluster.settled(P0, "n3"))
    for key in range(60):
        assert (await cluster.router.get(P0, f"k{key}")).value == f"v{rounds - 1}".encode()


def pid_of(cluster: NodeCluster, name: str) -> int:
    """Process id of the node's member; 0: it has none."""
    member = cluster.nodes[name].host._members.get(P0)
    process = getattr(member, "_process", None)
    return process.pid if process is not None else 0
