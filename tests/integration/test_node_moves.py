"""Moves from pending to stable to clean-up, with real members, under a continuous writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from rebalance.core.records import MemberState, Stage
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing

P0 = PartitionId(ZoneId(7), 0)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.mark.row("I3-026", "I3-027", "I3-036", "I3-040", "I3-047", "I3-050", "I3-059", shows="service")
async def test_one_to_three_to_one_and_a_new_leader_under_a_writer(cluster: NodeCluster) -> None:
    """S085, S088, I3-026, I3-027, I3-036, I3-040, I3-047, I3-050, I3-059: pending written by hand, without any
    DDL, moves the group; no put fails, all are read back, and no member is left outside the target."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    async with writing(cluster, P0) as writer:
        for target in (("n1", "n2", "n3"), ("n2", "n3", "n4"), ("n4",), ("n1",)):
            await cluster.write_pending(P0, *target)
            took_s = await cluster.until(lambda target=target: cluster.settled(P0, *target))
            print(f"-> {target}: {took_s:.2f} s, {len(writer.written)} puts, longest {writer.longest_s:.3f} s")
    print(f"{writer.attempts - len(writer.written)} repeats, {writer.repeated} found applied")
    await writer.check()


@pytest.mark.row("I3-037", shows="service")
async def test_a_planned_target_follows_by_itself(cluster: NodeCluster) -> None:
    """I3-037: planned becomes pending in the switch's transaction and the next move starts; a node that the
    first move removed and the second wants comes back with new data."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    before = cluster.record(P0, "n3")
    keys = cluster.keyspace.partition(P0)
    await cluster.put(keys.planned, Assignments(("n1", "n2", "n3")).encode())
    await cluster.write_pending(P0, "n1", "n2")
    await cluster.until(lambda: cluster.stable(P0) == {"n1", "n2"})
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    after = cluster.record(P0, "n3")
    assert before is not None
    assert after is not None
    assert before.peer_url != after.peer_url


@pytest.mark.row("I3-028", "I3-051", shows="service")
async def test_a_node_that_starts_late_is_waited_for(cluster: NodeCluster) -> None:
    """I3-028, I3-051: no change is accepted before the new member is reserved; the reason names it."""
    cluster.start("n1")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.write_pending(P0, "n1", "n2")
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", "") == "NODE_DOWN: n2")
    assert cluster.voters(P0) == {"n1"}
    await asyncio.sleep(1.0)
    cluster.start("n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", None) == "")


@pytest.mark.row("I3-049", shows="service")
async def test_a_member_in_pending_alone_is_not_stopped(cluster: NodeCluster) -> None:
    """I3-049: stable = [n1], pending = [n1, n2]: n2 keeps its member although it is not in stable, and loses it
    when pending no longer names it; the learner that was added for it is removed."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    # n3 does not exist, so the move to it waits with n2 promoted.
    await cluster.write_pending(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.record(P0, "n2") is not None)
    await asyncio.sleep(1.0)
    assert P0 in cluster.nodes["n2"].host.partitions()
    record = cluster.record(P0, "n2")
    assert record is not None
    assert record.state is MemberState.READY
    await cluster.write_pending(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    configuration = cluster.configuration(P0)
    assert configuration is not None
    assert configuration.stage is Stage.NONE
    await cluster.drop(P0)
    await cluster.until(lambda: not any(P0 in node.host.partitions() for node in cluster.nodes.values()))
    await cluster.until(lambda: cluster.record(P0, "n1") is None)


@pytest.mark.row("I3-035", "I3-044", shows="service")
async def test_a_target_that_changes_half_way(cluster: NodeCluster) -> None:
    """I3-035, I3-044: pending replaced half-way: the member added for the old target is taken out again."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.write_pending(P0, "n1", "n2")
    await cluster.until(lambda: cluster.voters(P0) == {"n1", "n2"})
    await cluster.write_pending(P0, "n1", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n3"))
