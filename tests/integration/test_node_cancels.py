"""Moves that are called back, with real members: the group goes back to where it was while none of its former
voters has left it, and on to its end after that (M8, M10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.guarded_write import Observed, Outcome, encode_trigger
from rebalance.core.assignments.withdrawal import decide_on_call_back
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing
from tests.fixtures.recorded_host import RecordedHost

P0 = PartitionId(ZoneId(15), 0)
EVENT = 5
SLOW_LEAVE = replace(QUICK, announce_s=4.0)
"""Clients are given so long to turn away from a voter: long enough to cancel in between."""
STRATEGIES = list(Strategy)


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


async def begin(cluster: NodeCluster, strategy: Strategy, *peers: str) -> None:
    """Begin a move, as the controllers do for ``EVENT``."""
    await cluster.put(cluster.keyspace.partition(P0).trigger, encode_trigger(EVENT))
    await cluster.write_pending(P0, *peers, strategy=strategy)


async def call_back(cluster: NodeCluster) -> Outcome:
    """Call the move back, as a cancelled operation does: decide again after a write in between."""
    keys = cluster.keyspace.partition(P0)
    while True:
        names = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock)
        observed = Observed(keys, *[await cluster.metastore.get(name) for name in names])
        configuration = await cluster.metastore.get(keys.configuration)
        decision = decide_on_call_back(observed, configuration, EVENT, EVENT + 1)
        if decision.transaction is None:
            return decision.outcome
        if (await cluster.metastore.commit(decision.transaction)).succeeded:
            return decision.outcome


def is_voter(cluster: NodeCluster, name: str) -> bool:
    configuration = cluster.configuration(P0)
    listed = configuration.members.get(name) if configuration is not None else None
    return listed is not None and listed.role is MemberRole.VOTER


def leaves(cluster: NodeCluster, name: str) -> bool:
    configuration = cluster.configuration(P0)
    return configuration is not None and name in configuration.members and configuration.members[name].leaving


@pytest.mark.row("M8", "M10")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_joiner_that_never_starts_is_called_back(cluster: NodeCluster, strategy: Strategy) -> None:
    """M8, M10, with each strategy: its member is taken out of the group, and nothing is left of the move."""
    cluster.start("n1", "n2", host_type=RecordedHost)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    joiner = cluster.nodes["n2"].host
    assert isinstance(joiner, RecordedHost)
    joiner.held = True
    async with writing(cluster, P0) as writer:
        await begin(cluster, strategy, "n1", "n2")
        await cluster.until(lambda: "n2" in cluster.voters(P0))
        assert await call_back(cluster) is Outcome.CALLED_BACK
        took_s = await cluster.until(lambda: cluster.settled(P0, "n1"))
        print(f"{strategy.value}: back after {took_s:.1f} s")
    await writer.check()


@pytest.mark.row("M10")
async def test_a_voter_that_was_announced_as_leaving_stays(cluster: NodeCluster) -> None:
    """M10, ``queue``: the new voter votes and one of before is about to go. Called back it stays, with the copy
    that it has, and the new one leaves."""
    cluster.start("n1", "n2", "n3", "n4", tuning=SLOW_LEAVE)
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    before = {name: record.peer_url for name in ("n1", "n2", "n3") if (record := cluster.record(P0, name))}
    async with writing(cluster, P0) as writer:
        await begin(cluster, Strategy.QUEUE, "n1", "n2", "n4")
        await cluster.until(lambda: is_voter(cluster, "n4") and leaves(cluster, "n3"))
        assert await call_back(cluster) is Outcome.CALLED_BACK
        took_s = await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
        print(f"back after {took_s:.1f} s")
    after = {name: record.peer_url for name in before if (record := cluster.record(P0, name))}
    assert after == before
    assert not leaves(cluster, "n3")
    await writer.check()


@pytest.mark.row("M10")
async def test_what_has_lost_a_voter_of_before_goes_on(cluster: NodeCluster) -> None:
    """M10: of two that are to leave one is gone. It is refused, and the move ends where it was to."""
    cluster.start("n1", "n2", "n3", tuning=SLOW_LEAVE)
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    async with writing(cluster, P0) as writer:
        await begin(cluster, Strategy.QUEUE, "n1")
        await cluster.until(lambda: cluster.voters(P0) < {"n1", "n2", "n3"})
        assert await call_back(cluster) is Outcome.CANCEL_TOO_LATE
        await cluster.until(lambda: cluster.settled(P0, "n1"))
    await writer.check()
