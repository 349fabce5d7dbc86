"""A move while the metastore is silent, with real members: the steps that a leader takes on the intention that
it has read in its term, those that it leaves until the intention can be read again, and how soon the rest
follows (M12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.ports.groups import FailureCode, GroupMember, MemberUnavailableError
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.recorded_host import RecordedHost
from tests.fixtures.strict_steps import STRICT_STEPS

P0 = PartitionId(ZoneId(14), 0)
LIMIT_S = 120.0
CONNECTED_S = 6.0 if STRICT_STEPS else 1.0
"""Seconds of the outage. With etcd's own check a group takes a next member once its voters have been connected
for five seconds, so after a shorter outage the move waits for the rest of these. With the nodes' own check of
the steps it does not wait."""
REST_S = 60.0
"""Seconds for the rest of the move: two to four on processors of its own; a busy machine is several times
slower."""
VALUE = b"x" * (1 << 20)


@pytest.fixture
async def cluster(own_etcd, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as running:
        yield running


def host(cluster: NodeCluster, name: str) -> RecordedHost:
    held = cluster.nodes[name].host
    assert isinstance(held, RecordedHost)
    return held


async def listed(cluster: NodeCluster, *names: str) -> tuple[GroupMember, ...]:
    """Members that the group itself lists, as nothing is published now."""
    while True:
        for name in names:
            try:
                return await host(cluster, name).configuration(P0, linearizable=True)
            except MemberUnavailableError:
                await asyncio.sleep(0.1)


async def has_come(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def waits_for_the_metastore(cluster: NodeCluster, leader: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            status = await host(cluster, leader).status(P0)
            if status and status.waiting and status.waiting.code is FailureCode.METASTORE_SILENT:
                return
            await asyncio.sleep(0.05)


def voters(members: tuple[GroupMember, ...]) -> set[str]:
    return {each.node for each in members if each.role is MemberRole.VOTER}


@dataclass(frozen=True)
class Move:
    stable: tuple[str, ...]
    pending: tuple[str, ...]
    joiner: str
    """The first one."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.stable, *self.pending)))


GROWTH = Move(("n1",), ("n1", "n2", "n3"), "n2")
CHANGE = Move(("n1", "n2", "n3"), ("n1", "n2", "n4"), "n4")
"""n3 is announced as leaving when n4 is added."""


async def begin(cluster: NodeCluster, move: Move, strategy: Strategy) -> None:
    """Returns when the first joiner is about to start. It is held: nothing of the copy is there."""
    cluster.start(*move.nodes, host_type=RecordedHost)
    await cluster.registered(*move.nodes)
    await cluster.write_stable(P0, *move.stable)
    await cluster.until(lambda: cluster.settled(P0, *move.stable))
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    for number in range(20):
        await cluster.router.put(P0, f"copied-{number}", VALUE, f"op-copied-{number}")
    host(cluster, move.joiner).held = True
    await cluster.write_pending(P0, *move.pending, strategy=strategy)
    await cluster.until(lambda: getattr(cluster.record(P0, move.joiner), "started", False), LIMIT_S)


@pytest.mark.row("I3-061", "M12")
@pytest.mark.parametrize("move", [GROWTH, CHANGE], ids=["growth", "change"])
async def test_the_running_joiner_votes_and_nothing_else_begins(
    cluster: NodeCluster, own_etcd: EtcdServer, move: Move
) -> None:
    """M12, I3-061, ``queue``: the metastore is killed during the first copy. The joiner votes before it
    returns; the next one is not added, and no voter is removed, though it was announced. The rest follows
    by itself once the metastore is back, with its data and on its ports."""
    await begin(cluster, move, Strategy.QUEUE)
    async with writing(cluster, P0) as writer:
        own_etcd.kill()
        host(cluster, move.joiner).held = False
        await waits_for_the_metastore(cluster, "n1")
        await asyncio.sleep(CONNECTED_S)
        members = await listed(cluster, "n1")
        assert voters(members) == {*move.stable, move.joiner}
        assert len(members) == len(voters(members))
        await asyncio.to_thread(own_etcd.restart)
        took_s = await cluster.until(lambda: cluster.settled(P0, *move.pending), REST_S)
        print(f"the rest followed {took_s:.1f} s after the metastore was back")
    await writer.check()


@pytest.mark.row("M12")
@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.CANCEL])
async def test_nobody_votes_where_another_target_may_be_wanted(
    cluster: NodeCluster, own_etcd: EtcdServer, strategy: Strategy
) -> None:
    """M12, ``update`` and ``cancel``: a joiner that is in sync does not vote before pending is locked, and only
    the metastore can say that."""
    await begin(cluster, GROWTH, strategy)
    async with writing(cluster, P0) as writer:
        own_etcd.kill()
        host(cluster, GROWTH.joiner).held = False
        superseded = FailureCode.SUPERSEDED
        await has_come(lambda: any(each.code is superseded for each in host(cluster, "n1").failures), "in sync")
        assert voters(await listed(cluster, "n1")) == {"n1"}
        await asyncio.to_thread(own_etcd.restart)
        took_s = await cluster.until(lambda: cluster.settled(P0, *GROWTH.pending), REST_S)
        print(f"{strategy.value}: both joined {took_s:.1f} s after the metastore was back")
    await writer.check()
