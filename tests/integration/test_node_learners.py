"""Roles that change beside real members: what the group does, with mirrors that hold nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import MemberLife
from tests.fixtures.held_mirrors import HeldMirrors
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(7), 0)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.mark.row("IEP-043", "IEP-044")
async def test_a_voter_learns_and_votes_again_under_a_writer(cluster: NodeCluster) -> None:
    """IEP-043, IEP-044, S241: demoted once its mirror runs and not before, promoted with its mirror beside it
    until the switch; no put fails, and the new member has the data of the group."""
    mirrors = HeldMirrors()
    cluster.start("n1", "n2")
    cluster.start("n3", mirrors=mirrors)
    endpoints = MirroredEndpoints(cluster.mirrors)
    keys = cluster.keyspace.partition(P0)
    three, learning = Assignments(("n1", "n2", "n3")), Assignments(("n1", "n2"), ("n3",))
    await cluster.put(keys.stable, three.encode())
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    async with writing(cluster, P0) as writer:
        await cluster.put(keys.pending, learning.encode())
        await cluster.until(lambda: reason(cluster) == "MIRROR_NOT_RUNNING: n3")
        assert cluster.voters(P0) == {"n1", "n2", "n3"}
        await cluster.until(lambda: len(mirrors.sources.get(P0, ())) == 2)  # the other voters
        mirrors.life = MemberLife.RUNNING
        await cluster.until(lambda: cluster.voters(P0) == {"n1", "n2"} and not cluster.has_pending(P0))
        await cluster.until(lambda: P0 not in cluster.nodes["n3"].host.partitions())
        await cluster.until(lambda: endpoints.learners(P0) == ("http://mirror",))
        await cluster.until(lambda: len(endpoints.route(P0).voters) == 2)

        held = peers_at_the_end(cluster, mirrors)
        await cluster.put(keys.pending, three.encode())
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
        await cluster.until(lambda: P0 not in mirrors.sources)
        assert held
        assert set(held) == {("n1", "n2", "n3")}
        await cluster.until(lambda: endpoints.learners(P0) == ())
    await writer.check()


def reason(cluster: NodeCluster) -> str:
    found = cluster.configuration(P0)
    return found.reason if found is not None else ""


def peers_at_the_end(cluster: NodeCluster, mirrors: HeldMirrors) -> list[tuple[str, ...]]:
    """Filled from now on: stable's voters at the moment at which a mirror is destroyed."""
    found: list[tuple[str, ...]] = []
    stop = mirrors.stop

    async def noted(partition: PartitionId, *, destroy: bool) -> None:
        stable = await cluster.metastore.get(cluster.keyspace.partition(partition).stable)
        if destroy and stable is not None:
            found.append(Assignments.decode(stable.value).peers)
        await stop(partition, destroy=destroy)

    mirrors.stop = noted
    return found


async def test_a_node_without_mirrors_says_so(cluster: NodeCluster) -> None:
    """Go on without a learner on a node that keeps no mirrors; its record names the cause."""
    cluster.start("n1", "n2")
    keys = cluster.keyspace.partition(P0)
    await cluster.put(keys.stable, Assignments(("n1",), ("n2",)).encode())
    await cluster.until(lambda: cluster.voters(P0) == {"n1"})
    await cluster.until(lambda: getattr(cluster.record(P0, "n2"), "mirror", None) is not None)
    await cluster.until(lambda: "MIRRORS_NOT_KEPT" in str(cluster.record(P0, "n2")))
