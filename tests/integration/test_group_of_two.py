"""A group of two whose new voter is killed for good: a lost majority and no move (M11). With real members, and
the killed node is a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.core.moves.move_status import PartitionView, partition_status
from rebalance.core.recovery.recovery_plan import plan_reset
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.ports.groups import GroupChange, GroupMember
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.held_joiner import HeldChange
from tests.fixtures.joiners import Joiners
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.puts import is_applied_once
from tests.fixtures.survivors import force, position

P0 = PartitionId(ZoneId(7), 0)
ONE, TWO = Assignments(("n1",)), Assignments(("n1", "n2"))
LOST = "NO_MAJORITY: n2"
LIMIT_S = 60.0
"""Three seconds of lease, or as much for a leader to step down and stay away; a busy machine is several times
slower."""


class HoldingHost(EtcdGroupHost):
    """Host whose leader waits before it touches voters until it is ``released``; ``reached``: it waits."""

    reached = released = False

    def change(self, partition: PartitionId) -> GroupChange | None:
        change = super().change(partition)
        return HeldChange(change, self._may_touch) if change is not None else None

    def _may_touch(self) -> bool:
        self.reached = True
        return self.released


@pytest.fixture
async def cluster(own_etcd, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.fixture
def joiners(cluster: NodeCluster, tmp_path: Path):
    (tmp_path / "gates" / "n2").mkdir(parents=True)
    joiners = Joiners(cluster, tmp_path / "gates")
    yield joiners
    joiners.stop()


def shown(cluster: NodeCluster) -> PartitionView:
    """View of the partition, as servers read it."""
    keys = cluster.keyspace.partition(P0)
    stable, pending = (cluster.mirrors.partitions.value(each) for each in (keys.stable, keys.pending))
    assert stable is not None
    records = {name: cluster.record(P0, name) for name in TWO.peers}
    return PartitionView(
        target=TWO,
        stable=Assignments.decode(stable),
        pending=Assignments.decode(pending) if pending is not None else None,
        planned=None,
        processed=True,
        members={name: record for name, record in records.items() if record is not None},
        configuration=cluster.configuration(P0),
    )


def alive(cluster: NodeCluster) -> frozenset[str]:
    return frozenset(name for name in TWO.peers if cluster.mirrors.nodes.get(cluster.keyspace.node(name)))


def cause(cluster: NodeCluster) -> str:
    return partition_status(shown(cluster), alive(cluster)).cause


def role(cluster: NodeCluster) -> MemberRole | None:
    configuration = cluster.configuration(P0)
    listed = configuration.members.get("n2") if configuration is not None else None
    return listed.role if listed is not None else None


async def begin(cluster: NodeCluster, joiners: Joiners) -> HoldingHost:
    """Returns when n2 is in sync and not yet promoted."""
    cluster.start("n1", host_type=HoldingHost)
    await cluster.write_stable(P0, "n1")
    host = cluster.nodes["n1"].host
    assert isinstance(host, HoldingHost)
    host.released = True
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    host.reached = host.released = False
    joiners.start("n2")
    await cluster.registered("n2")
    await cluster.write_pending(P0, *TWO.peers)
    await cluster.until(lambda: host.reached)
    assert role(cluster) is MemberRole.LEARNER
    return host


async def is_reset(cluster: NodeCluster) -> None:
    """Reset the partition to the old voter, which has all that was acknowledged."""
    await cluster.until(lambda: position(cluster, "n1") is not None)
    plan = plan_reset(shown(cluster), alive(cluster), TWO.peers)
    assert plan.survivor == "n1"
    assert plan.then is None
    await force(cluster, plan.survivor)
    took_s = await cluster.until(lambda: cluster.settled(P0, "n1"))
    print(f"founded anew after {took_s:.1f} s")
    assert is_applied_once(await cluster.router.put(P0, "after", b"1", "op-after"))


@pytest.mark.row("M11")
@pytest.mark.parametrize("switched", [False, True])
async def test_a_voter_killed_after_its_promotion_is_a_lost_majority(
    cluster: NodeCluster, joiners: Joiners, switched: bool
) -> None:
    """M11: published as a voter, before stable is switched or after it. The cause says so, and the reset on the
    old voter reads everything back."""
    host = await begin(cluster, joiners)
    async with writing(cluster, P0) as writer:
        host.released = True
        await cluster.until(lambda: role(cluster) is MemberRole.VOTER)
        if switched:
            await cluster.until(lambda: cluster.stable(P0) == TWO.nodes and not cluster.has_pending(P0))
            written = len(writer.written)
            await cluster.until(lambda: len(writer.written) > written + 20)
        joiners.kill("n2")
    took_s = await cluster.until(lambda: cause(cluster) == LOST, LIMIT_S)
    print(f"its cause after {took_s:.1f} s")
    await is_reset(cluster)
    await writer.check()


@pytest.mark.row("M11", "M12")
async def test_a_promotion_that_nobody_could_publish_is_a_lost_majority(
    cluster: NodeCluster, joiners: Joiners, own_etcd: EtcdServer
) -> None:
    """M11, M12: promote the joiner and kill it while the metastore is silent. When that is back the group has
    no leader, so no node can publish who votes: the old voter reports that it has no leader."""
    host = await begin(cluster, joiners)
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 20)
        own_etcd.kill()
        host.released = True
        async with asyncio.timeout(LIMIT_S):
            while not any(each.node == "n2" for each in voters(await host.configuration(P0))):
                await asyncio.sleep(0.02)
        joiners.kill("n2")
    async with asyncio.timeout(LIMIT_S):
        while (status := await host.status(P0)) is None or status.leader:
            await asyncio.sleep(0.1)
    await asyncio.to_thread(own_etcd.restart)
    with pytest.raises(RefusedError) as refused:
        plan_reset(shown(cluster), frozenset(TWO.peers), TWO.peers)
    assert refused.value.kind is ErrorKind.RECOVERY_NOT_NEEDED
    took_s = await cluster.until(lambda: cause(cluster) == LOST, LIMIT_S)
    print(f"its cause {took_s:.1f} s after the metastore was back")
    assert role(cluster) is MemberRole.LEARNER
    await is_reset(cluster)
    await writer.check()


def voters(members: tuple[GroupMember, ...]) -> tuple[GroupMember, ...]:
    return tuple(each for each in members if each.role is MemberRole.VOTER)
