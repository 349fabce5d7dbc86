"""Faults that are never healed: what has a majority rests, what has none says so, no acknowledged put goes."""

from __future__ import annotations

import asyncio

import pytest

from rebalance.groups.calls.etcd_api import FailureKind
from simulator.control.run import Simulation, simulate
from simulator.control.simulated_cluster import SimulatedCluster
from simulator.control.staying import GONE_VOTER, KINDS, REMOVED_VOTER
from tests.fixtures.simulated_group import CALM, Removals, founded, refused, virtually
from tests.simulation.staying_seeds import ENDS, HELD, REMOVED, SLICE, staying


@pytest.mark.parametrize("wanted", ENDS, ids=lambda each: f"{each.seed} {', '.join(each.staying)}")
def test_moves_end_though_nothing_is_healed(wanted: Simulation) -> None:
    report = simulate(wanted)
    assert report.broken is None
    assert any(name.endswith("for good") for name in report.events)
    assert "faults stop" not in report.events


def test_what_a_voter_that_is_gone_holds_up_names_it() -> None:
    """Name the node of a voter that is not connected, beside which etcd's strict check takes no member."""
    report = simulate(HELD)
    assert report.broken is None
    gone = {line.rsplit(" ", 1)[1] for _, line in report.lines if line.startswith("node is gone for good")}
    assert gone
    assert report.held
    assert {each for each in report.rested_s if "/" in each} == {f"1/{each}" for each in range(4)} - set(
        report.held
    )
    assert max(report.rested_s.values()) > 0.0
    assert report.awaited.keys() <= report.rested_s.keys()
    assert set(report.held.values()) <= {f"{GONE_VOTER}: NODE_DOWN: {name}" for name in gone}


def test_a_move_that_goes_back_to_a_removed_voter_names_it() -> None:
    """Name a removed voter whose node is gone, when the node that was to come instead is gone, too."""
    report = simulate(REMOVED)
    assert report.broken is None
    assert report.held["1/0"] == f"{REMOVED_VOTER}: NODE_DOWN: n0"


@pytest.mark.thorough("chosen ones are above")
def test_seeds_that_do_not_heal_converge_or_name_their_cause() -> None:
    """Some of the thousand (``make soak``): nothing acknowledged is gone, what has a majority rests."""
    kinds: set[str] = set()
    for seed in SLICE:
        report = simulate(staying(seed))
        assert report.broken is None, f"seed {seed}: {report.broken}"
        kinds |= {name.removesuffix(" for good") for name in report.events if name.endswith(" for good")}
    assert kinds == set(KINDS)


def test_a_cut_link_costs_a_leader_its_majority() -> None:
    """One way is enough; who still reaches a majority leads then, and has every acknowledged put."""

    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        leader = group.replicas[group.leader_id].node
        others = sorted({"a", "b", "c"} - {leader})
        assert group.put()
        cluster.cut_link(leader, others[0])
        assert group.has_leader
        assert group.put()
        cluster.cut_link(others[1], leader)
        assert not group.put()
        assert group.has_majority
        await asyncio.sleep(CALM.election_s[1] + 0.1)
        assert group.replicas[group.leader_id].node == others[1], "the other one misses a put"
        assert group.put()

    virtually(main)


def test_a_put_that_a_leader_does_not_have_is_lost() -> None:
    """Count a put as lost when both voters that had it are thrown away, as by a faulty protocol; later puts do
    not hide it."""

    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        behind = next(each for each in group.replicas.values() if each.member_id != group.leader_id)
        cluster.stop(behind)
        assert group.put()
        assert group.lost == 0
        for member_id in set(group.entries) - {behind.member_id}:
            cluster.stop(group.replicas.pop(member_id))
            del group.entries[member_id]
        cluster.restart(behind)
        await asyncio.sleep(CALM.start_s[1] + CALM.election_s[1] + 0.1)
        assert group.put()
        assert group.lost == 1

    virtually(main)


def test_no_member_starts_on_a_full_disk_and_a_slow_copy_takes_long() -> None:
    async def main(cluster: SimulatedCluster, heard: Removals) -> None:
        group = await founded(cluster, "abc")
        cluster.full.add("d")
        cluster.slow["e"] = 300.0
        for node in "de":
            replica = cluster.reserve(node, group.partition)
            group.add_learner(replica.endpoints.peer_url)
            learner = max(group.entries)
            listed = {str(each.member_id): each.peer_url for each in group.entries.values()}
            cluster.start(replica, "", listed, is_new=False)
            await asyncio.sleep(290.0)
            assert replica.runs == (node == "e")
            assert refused(lambda learner=learner: group.promote(learner)) is FailureKind.NOT_IN_SYNC
            if node == "d":
                assert "no space left" in replica.reason
                group.remove(learner)
        await asyncio.sleep(20.0)
        group.promote(learner)
        assert "e" in group.nodes[0]

    virtually(main)


@pytest.mark.parametrize(
    "wanted",
    [
        Simulation(1, staying=("earthquake",)),
        Simulation(1, partitions=2_000, staying=()),
    ],
    ids=lambda each: str(each.staying),
)
def test_what_cannot_stay(wanted: Simulation) -> None:
    with pytest.raises(ValueError, match="faults"):
        simulate(wanted)
