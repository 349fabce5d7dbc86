"""Changes that a group's leader drives, and clients that follow the group: with real members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.nodes.partition_view import MirroredEndpoints, Mirrors
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(11), 0)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def stable_updates(
    cluster: NodeCluster, mirrors: Mirrors, source: MirroredEndpoints
) -> list[tuple[Assignments, frozenset[str]]]:
    """Filled from now on: stable as it is at each event of its key, and the addresses that clients use then."""
    found: list[tuple[Assignments, frozenset[str]]] = []
    key = cluster.keyspace.partition(P0).stable

    def note(changed: frozenset[str]) -> None:
        value = mirrors.partitions.value(key)
        if key in changed and value is not None:
            found.append((Assignments.decode(value), frozenset(source.route(P0).voters)))

    mirrors.partitions.listen(note)
    return found


@pytest.mark.row("I3-038", "I3-039", "I3-048")
async def test_clients_follow_the_group(cluster: NodeCluster) -> None:
    """I3-038, I3-039, I3-048: wake clients that wait for new addresses by the published configuration. The
    switch of stable is an event at every node and at the client, once and with the new value; by then the
    client lists exactly the new members. No connection to an old one is left."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    source = MirroredEndpoints(cluster.mirrors)
    async with writing(cluster, P0) as writer:
        before = source.route(P0)
        updates = [
            stable_updates(cluster, mirrors, source)
            for mirrors in (cluster.mirrors, *(node.agent.mirrors for node in cluster.nodes.values()))
        ]
        waiting = asyncio.create_task(source.wait_for_change(P0, before, 60))
        await cluster.write_pending(P0, "n2", "n3")
        await waiting
        assert source.route(P0) != before
        await cluster.until(lambda: cluster.settled(P0, "n2", "n3"))
    await writer.check()
    records = [cluster.record(P0, name) for name in ("n2", "n3")]
    after = {record.client_url for record in records if record is not None}
    assert set(source.route(P0).voters) == after
    assert len(set(before.voters) - after) == 1
    await cluster.until(lambda: all(updates))
    (switched,) = {stable for each in updates for stable, _ in each}
    assert switched == Assignments(("n2", "n3"))
    assert [len(each) for each in updates] == [1] * 4
    assert updates[0] == [(switched, frozenset(after))]
    await cluster.router.get(P0, "k")
    connected = set(cluster.router._groups._connections._channels)
    assert connected <= after


@pytest.mark.row("I3-042")
async def test_a_move_goes_on_beside_whoever_leads(cluster: NodeCluster) -> None:
    """I3-042, decided: there is no lease of its own for the primary; the group's leader drives a change, also
    when the preferred primary is another node, and keeps leading if it stays, until all is at rest. Leadership
    moves while the change waits for a node: nothing is at rest then, however slow the machine is."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.write_pending(P0, "n1", "n2", "n3", "n4")
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", "") == "NODE_DOWN: n4")
    leader = cluster.leader(P0)
    successor = next(name for name in ("n2", "n3") if name != leader)
    assert await cluster.nodes[leader].host.transfer_leadership(P0, successor)
    await cluster.until(lambda: cluster.leader(P0) == successor)
    leaders = cluster.leaders_at_switch(P0, "n1", "n2", "n3", "n4")
    cluster.start("n4")
    await cluster.until(lambda: cluster.stable(P0) == {"n1", "n2", "n3", "n4"})
    assert leaders == [successor]


@pytest.mark.row("PME-131", "PME-132", "PME-133")
async def test_leadership_goes_to_the_preferred_primary_at_rest(cluster: NodeCluster) -> None:
    """PME-131, PME-132, PME-133, decision 15: in one switch, under a writer that sees no error; the leader of a
    move leads on until it is over."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    async with writing(cluster, P0) as writer:
        leaders = cluster.leaders_at_switch(P0, "n1", "n2", "n3")
        await cluster.write_pending(P0, "n3", "n1", "n2")
        await cluster.until(lambda: cluster.stable(P0) == {"n1", "n2", "n3"})
        assert leaders == ["n1"]
        await cluster.until(lambda: cluster.leader(P0) == "n3")
    await writer.check()
    await asyncio.sleep(4)
    assert cluster.leader(P0) == "n3", "it stays there"
