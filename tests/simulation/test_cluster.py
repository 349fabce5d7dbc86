"""The modelled group accepts and refuses what etcd does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keys import PartitionId
from rebalance.groups.etcd_api import CallFailedError, FailureKind
from rebalance.simulation.simulated_cluster import SimulatedCluster
from rebalance.simulation.simulated_raft import (
    HEALTHY_AFTER_S,
    GroupRates,
    SimulatedGroup,
    SimulatedMirror,
    SimulatedReplica,
)
from rebalance.simulation.virtual_time import run_virtually

P0 = PartitionId(ZoneId(1), 0)
CALM = GroupRates(lost_call=0.0, late_call=0.0, lost_answer=0.0)


class Removals:
    """A ``GroupObserver`` that keeps what it hears."""

    def __init__(self) -> None:
        self.removals: list[tuple[int, int, int]] = []

    def on_step(self, group: SimulatedGroup, step: str) -> None: ...

    def on_removal(self, group: SimulatedGroup, before: int, known_up: int, voters: int) -> None:
        self.removals.append((before, known_up, voters))

    def on_destroy(self, replica: SimulatedReplica) -> None: ...

    def on_voter_gone(self, replica: SimulatedReplica) -> None: ...

    def on_mirror_destroy(self, mirror: SimulatedMirror) -> None: ...


async def founded(cluster: SimulatedCluster, names: str) -> SimulatedGroup:
    """A healthy group with a leader."""
    initial = {name: cluster.reserve(name, P0).endpoints.peer_url for name in names}
    for name in names:
        cluster.start(cluster.disk(name)[P0], "t", initial, is_new=True)
    await asyncio.sleep(HEALTHY_AFTER_S + 3.0)
    assert cluster.groups[P0].has_leader
    return cluster.groups[P0]


def refused(step: Callable[[], object]) -> FailureKind:
    with pytest.raises(CallFailedError) as failed:
        step()
    return failed.value.kind


def virtually(main: Callable[[SimulatedCluster, Removals], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        heard = Removals()
        await main(SimulatedCluster("test", CALM, heard), heard)

    run_virtually(run())


def test_a_learner_is_promoted_once_it_has_caught_up() -> None:
    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        replica = cluster.reserve("d", P0)
        group.add_learner(replica.endpoints.peer_url)
        learner = max(group.entries)
        assert refused(lambda: group.add_learner(replica.endpoints.peer_url)) is FailureKind.ALREADY_DONE
        assert refused(lambda: group.add_learner("peer://e")) is FailureKind.LEARNER_SLOT_TAKEN
        assert refused(lambda: group.promote(learner)) is FailureKind.NOT_IN_SYNC
        assert not group.move_leader(learner), "a learner never leads"
        cluster.start(replica, "", {"wrong": "list"}, is_new=False)
        assert not replica.runs, "its list is not that of the group"
        listed = {str(each.member_id): each.peer_url for each in group.entries.values()}
        cluster.start(replica, "", listed, is_new=False)
        await asyncio.sleep(CALM.start_s[1] + CALM.catch_up_s[1] + 0.1)
        group.promote(learner)
        assert group.nodes == (frozenset("abcd"), frozenset())

    virtually(main)


def test_a_removal_that_costs_the_majority_is_refused() -> None:
    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        by_node = {replica.node: member_id for member_id, replica in group.replicas.items()}
        cluster.stop_node("c")
        await asyncio.sleep(60.0)
        assert group.has_leader
        assert refused(lambda: group.add_learner("peer://d")) is FailureKind.UNHEALTHY
        assert refused(lambda: group.remove(by_node["b"])) is FailureKind.UNHEALTHY
        group.remove(by_node["c"])
        assert heard.removals == [(2, 2, 2)]
        cluster.stop_node("b")
        await asyncio.sleep(60.0)
        assert refused(group.check_leader) is FailureKind.NO_LEADER

    virtually(main)


def test_a_lost_leader_is_replaced_in_a_later_term() -> None:
    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        term, leader = group.term, group.replicas[group.leader_id].node
        cluster.stop_node(leader)
        assert not group.has_leader
        await asyncio.sleep(CALM.election_s[1] + 0.1)
        assert group.has_leader
        assert group.term == term + 1
        assert group.replicas[group.leader_id].node != leader

    virtually(main)
