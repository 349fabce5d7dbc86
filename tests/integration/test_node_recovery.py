"""A lost majority and the way back, with real members: who may serve, and what survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import RestartRecord
from rebalance.data.zone_router import ZoneRouter
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import OutcomeUnknownError
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.node_processes import members_below
from tests.fixtures.puts import is_applied_once
from tests.fixtures.survivors import P0, force, founded, kill, position


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.mark.row("IEP-049", "IEP-059")
async def test_a_survivor_founds_the_group_anew(cluster: NodeCluster) -> None:
    """S186, S214, IEP-049, IEP-059: with its majority killed the group takes no write; the survivor tells how
    far its copy goes, founds the group anew, and everything that was acknowledged is there; what is planned
    follows."""
    await founded(cluster, "n1", "n2", "n3")
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 200)
    await writer.check()
    await kill(cluster, "n2", "n3")
    hurried = ZoneRouter(MirroredEndpoints(cluster.mirrors), time_limit_s=2.0)
    with pytest.raises(OutcomeUnknownError):
        await hurried.put(P0, "during", b"-", "op-during")
    await hurried.close()
    await cluster.until(lambda: position(cluster, "n1") is not None)
    cluster.start("n4", "n5")
    generation = await force(cluster, "n1", "n1", "n4", "n5")
    took_s = await cluster.until(lambda: cluster.stable(P0) >= {"n1"} and len(cluster.voters(P0)) == 1)
    await cluster.until(lambda: cluster.settled(P0, "n1", "n4", "n5"))
    print(f"founded anew after {took_s:.2f} s")
    await writer.check()
    assert is_applied_once(await cluster.router.put(P0, "after", b"1", "op-after"))
    await cluster.until(lambda: position(cluster, "n1") is None)
    configuration = cluster.configuration(P0)
    assert configuration is not None
    assert configuration.generation == generation
    # The lost members come back: their data goes, and they are not in the group.
    cluster.start("n2", "n3")
    await cluster.registered("n2", "n3")
    for name in ("n2", "n3"):
        await cluster.until(lambda name=name: P0 not in cluster.nodes[name].host.partitions())
    assert cluster.settled(P0, "n1", "n4", "n5")
    await writer.check()


@pytest.mark.row("IEP-051")
async def test_lost_members_that_return_in_the_middle_do_not_serve(cluster: NodeCluster) -> None:
    """IEP-051, S106: two of three are a majority of the old group; back before the survivor has founded the new
    one, they neither run nor take a write, and their data goes once stable is switched."""
    await founded(cluster, "n1", "n2", "n3")
    await cluster.router.put(P0, "k", b"1", "op-1")
    await kill(cluster, "n2", "n3")
    await cluster.stop("n1")
    await force(cluster, "n1", "n1", "n2")
    cluster.start("n2", "n3")
    for name in ("n2", "n3"):
        await cluster.until(
            lambda name=name: getattr(cluster.record(P0, name), "reason", "").startswith("FENCED")
        )
    await asyncio.sleep(1.0)
    assert not any(members_below(cluster.directory / name) for name in ("n2", "n3"))
    hurried = ZoneRouter(MirroredEndpoints(cluster.mirrors), time_limit_s=1.0)
    with pytest.raises(OutcomeUnknownError):
        await hurried.put(P0, "k", b"2", "op-2")
    await hurried.close()
    before = cluster.record(P0, "n2")
    cluster.start("n1")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    after = cluster.record(P0, "n2")
    assert before is not None
    assert after is not None
    assert before.peer_url != after.peer_url
    assert (await cluster.router.get(P0, "k")).value == b"1"
    assert P0 not in cluster.nodes["n3"].host.partitions()


async def test_a_founding_is_done_once_whenever_the_node_dies(cluster: NodeCluster) -> None:
    """Decision 19: the node stops after its member has become the only one and before anybody was told; it
    comes back, does not found again, and goes on from there."""
    await founded(cluster, "n1", "n2", "n3")
    await cluster.router.put(P0, "k", b"1", "op-1")
    await kill(cluster, "n2", "n3")
    host = cluster.nodes["n1"].host
    done = asyncio.Event()
    found_alone = host.found_alone

    async def interrupted(partition: PartitionId, generation: int) -> bool:
        if await found_alone(partition, generation):
            done.set()
        return False

    host.found_alone = interrupted
    generation = await force(cluster, "n1")
    async with asyncio.timeout(90):
        await done.wait()
    await cluster.stop("n1")
    marker = cluster.directory / "n1" / "members" / "7-0" / "reservation.json"
    assert json.loads(marker.read_text())["generation"] == generation
    assert cluster.voters(P0) == {"n1", "n2", "n3"}
    cluster.start("n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    (process,) = members_below(cluster.directory / "n1")
    assert not any("force-new-cluster" in word for word in process.cmdline())
    assert (await cluster.router.get(P0, "k")).value == b"1"


async def test_a_later_recovery_chooses_another_node(cluster: NodeCluster) -> None:
    """S192, S228: a second reset while the first is under way is forced again, and founds another generation;
    who was chosen first has lost."""
    await founded(cluster, "n1", "n2", "n3")
    await cluster.router.put(P0, "k", b"1", "op-1")
    await kill(cluster, "n2", "n3")
    first = await force(cluster, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.router.put(P0, "k", b"2", "op-2")
    await cluster.stop("n1")
    cluster.start("n2")
    await cluster.registered("n2")
    await cluster.until(lambda: P0 not in cluster.nodes["n2"].host.partitions())
    second = await force(cluster, "n2", empty=True)
    assert second > first
    await cluster.until(lambda: cluster.settled(P0, "n2"))
    cluster.start("n1")
    await cluster.registered("n1")
    await cluster.until(lambda: P0 not in cluster.nodes["n1"].host.partitions())
    assert cluster.settled(P0, "n2")
    assert (await cluster.router.get(P0, "k")).value is None


async def test_nobody_has_a_copy(cluster: NodeCluster) -> None:
    """S189: the partition begins empty on the node that is named, and takes writes."""
    await founded(cluster, "n1")
    await cluster.router.put(P0, "k", b"1", "op-1")
    await kill(cluster, "n1")
    cluster.start("n2")
    await force(cluster, "n2", empty=True)
    await cluster.until(lambda: cluster.settled(P0, "n2"))
    assert (await cluster.router.get(P0, "k")).value is None
    assert is_applied_once(await cluster.router.put(P0, "k", b"2", "op-2"))


async def test_a_chosen_copy_that_is_gone_is_not_replaced_by_nothing(cluster: NodeCluster) -> None:
    """Found no group on a forced node without data unless the recovery says that no node has a copy."""
    await founded(cluster, "n1")
    await kill(cluster, "n1")
    cluster.start("n2")
    await force(cluster, "n2")
    await cluster.until(lambda: getattr(cluster.record(P0, "n2"), "reason", "").startswith("DATA_LOST"))
    assert not members_below(cluster.directory / "n2")


async def test_clean_up_of_a_member_that_joins(cluster: NodeCluster) -> None:
    """S209: the new member of a running move is restarted with clean-up, whether it votes already or not; the
    move ends, the rows are there."""
    await founded(cluster, "n1", "n2", "n3")
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 50)
        cluster.start("n4")
        await cluster.write_pending(P0, "n1", "n2", "n3", "n4")
        await cluster.until(lambda: "n4" in cluster.voters(P0))
        before = cluster.record(P0, "n4")
        key = cluster.keyspace.restart(P0, "n4")
        await cluster.put(key, RestartRecord(cleanup=True).encode())
        await cluster.until(lambda: cluster.mirrors.partitions.get(key) is None)
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3", "n4"))
    after = cluster.record(P0, "n4")
    assert before is not None
    assert after is not None
    assert before.peer_url != after.peer_url
    await writer.check()


async def test_a_restart_keeps_the_data(cluster: NodeCluster) -> None:
    """Restart the same member once, without clean-up and with its data; then the key is gone."""
    await founded(cluster, "n1")
    await cluster.router.put(P0, "k", b"1", "op-1")
    (before,) = members_below(cluster.directory / "n1")
    key = cluster.keyspace.restart(P0, "n1")
    await cluster.put(key, RestartRecord(cleanup=False).encode())
    await cluster.until(lambda: cluster.mirrors.partitions.get(key) is None)
    assert (await cluster.router.get(P0, "k")).value == b"1"
    (after,) = members_below(cluster.directory / "n1")
    assert before.pid != after.pid
    await cluster.until(lambda: cluster.settled(P0, "n1"))
