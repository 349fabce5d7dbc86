"""The modelled group accepts and refuses what etcd does."""

from __future__ import annotations

import asyncio

from rebalance.groups.calls.etcd_api import FailureKind
from simulator.control.simulated_cluster import SimulatedCluster
from tests.fixtures.simulated_group import CALM, P0, Removals, founded, refused, virtually


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
