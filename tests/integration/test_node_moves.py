"""Moves from pending to stable to clean-up, with real members, under a continuous writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole, MemberState, Stage
from rebalance.ports.groups import FailureCode
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing, written
from tests.fixtures.node_processes import members_below
from tests.fixtures.recorded_host import RecordedHost

P0 = PartitionId(ZoneId(7), 0)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def member_processes(cluster: NodeCluster) -> dict[str, list[psutil.Process]]:
    """Member processes by node, without nodes that have none."""
    found = {name: members_below(cluster.directory / name) for name in cluster.nodes}
    return {name: processes for name, processes in found.items() if processes}


@pytest.mark.row("I3-026", "I3-027", "I3-036", "I3-040", "I3-047", "I3-050", "I3-059")
async def test_one_to_three_to_one_and_a_new_leader_under_a_writer(cluster: NodeCluster) -> None:
    """S085, S088, I3-026, I3-027, I3-036, I3-040, I3-047, I3-050, I3-059: pending written by hand, without any
    DDL, moves the group; no put fails, all are read back, and no member is left outside the target. Members
    start where pending is and stable was not, and nowhere else; those that stay are the same processes."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    before = member_processes(cluster)
    assert before.keys() == {"n1"}
    async with writing(cluster, P0) as writer:
        for target in (("n1", "n2", "n3"), ("n2", "n3", "n4"), ("n4",), ("n1",)):
            await cluster.write_pending(P0, *target)
            took_s = await cluster.until(lambda target=target: cluster.settled(P0, *target))
            after = member_processes(cluster)
            assert after.keys() == set(target)
            stayed = before.keys() & after.keys()
            assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}
            before = after
            print(f"-> {target}: {took_s:.2f} s, {len(writer.written)} puts, longest {writer.longest_s:.3f} s")
    print(f"{writer.attempts - len(writer.written)} repeats, {writer.repeated} found applied")
    await writer.check()


def recorded(cluster: NodeCluster, name: str) -> RecordedHost:
    host = cluster.nodes[name].host
    assert isinstance(host, RecordedHost)
    return host


@pytest.mark.row("I3-037")
async def test_a_planned_target_follows_by_itself(cluster: NodeCluster) -> None:
    """I3-037: planned becomes pending in the switch's transaction and the next move starts; a node that the
    first move removed and the second wants comes back with new data."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    before = cluster.record(P0, "n3")
    keys = cluster.keyspace.partition(P0)
    two, three = Assignments(("n1", "n2")), Assignments(("n1", "n2", "n3"))
    async with written(cluster, P0) as transactions:
        await cluster.put(keys.planned, three.encode())
        await cluster.write_pending(P0, *two.peers)
        await cluster.until(lambda: cluster.settled(P0, *three.peers) and len(transactions) > 3)
    assert transactions == [
        {"planned": three},
        {"pending": two},
        {"stable": two, "pending": three, "planned": None},
        {"stable": three, "pending": None},
    ]
    after = cluster.record(P0, "n3")
    assert before is not None
    assert after is not None
    assert before.peer_url != after.peer_url


@pytest.mark.row("I3-028", "I3-051")
async def test_a_node_that_starts_late_is_waited_for(cluster: NodeCluster) -> None:
    """I3-028, I3-051: request no change before the new member is reserved, and promote none before it has
    started; the reason names it. Only the group's leader requests the change."""
    tuning = replace(QUICK, catch_up_timeout_s=0.5)
    cluster.start("n1", "n2", tuning=tuning, host_type=RecordedHost)
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    token = await cluster.write_pending(P0, "n1", "n2", "n3")
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", "") == "NODE_DOWN: n3")
    await asyncio.sleep(1.0)
    assert [recorded(cluster, name).requests for name in ("n1", "n2")] == [[], []]
    cluster.start("n3", tuning=tuning, host_type=RecordedHost)
    recorded(cluster, "n3").held = True
    leader = recorded(cluster, cluster.leader(P0))
    await cluster.until(lambda: FailureCode.MEMBER_NOT_STARTED in {each.code for each in leader.failures})
    configuration = cluster.configuration(P0)
    assert configuration is not None
    listed = configuration.members.items()
    assert {name for name, member in listed if member.role is MemberRole.VOTER} == {"n1", "n2"}
    assert cluster.stable(P0) == {"n1", "n2"}
    assert leader.applied == []
    recorded(cluster, "n3").held = False
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", None) == "")
    asked = {name for name in cluster.nodes if recorded(cluster, name).accepted}
    assert asked == {name for name in cluster.nodes if recorded(cluster, name) is leader}
    assert {each.token for each in leader.accepted} == {token}
    assert leader.applied == [Assignments(("n1", "n2", "n3"))]


@pytest.mark.row("I3-049")
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


@pytest.mark.row("I3-035", "I3-044")
async def test_a_target_that_changes_half_way(cluster: NodeCluster) -> None:
    """I3-035, I3-044: pending replaced half-way: the member added for the old target is taken out again, and
    only what the leader has reported as applied becomes stable, once."""
    cluster.start("n1", "n2", "n3", "n4", host_type=RecordedHost)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    recorded(cluster, "n3").held = True
    old, new = Assignments(("n1", "n2", "n3")), Assignments(("n1", "n4"))
    async with written(cluster, P0) as transactions:
        await cluster.write_pending(P0, *old.peers)
        await cluster.until(lambda: cluster.voters(P0) == old.nodes)
        await cluster.write_pending(P0, *new.peers)
        await cluster.until(lambda: cluster.settled(P0, *new.peers) and len(transactions) > 2)
    assert transactions == [{"pending": old}, {"pending": new}, {"stable": new, "pending": None}]
    applied = [(name, target) for name in cluster.nodes for target in recorded(cluster, name).applied]
    assert {target for _, target in applied} == {new}
    assert {name for name, _ in applied} <= {"n1", "n2"}
