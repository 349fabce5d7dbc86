"""Every voter of a partition is lost and learners live: their copies count (IEP-059, IEP-060)."""

from __future__ import annotations

import json

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.recovery_commands import dry_run, freeze, leads_nowhere, reset, states

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("every voter is killed, and a learner founds the group anew"),
    pytest.mark.thorough("integration/test_found_from_learner has it over agents"),
]


@pytest.mark.row("IEP-059", "IEP-060", "R2", "R5")
def test_learners_found_the_group_where_every_voter_is_lost(five_nodes: Installation) -> None:
    """IEP-059, IEP-060, R2, R5: kill the nodes of three voters out of five, with two learners. The group then
    has no leader. The dry run shows both learners and their revisions; beginning empty is refused while they
    live; the better one founds the group, which has every put that was acknowledged before the learners had it;
    a node that returns serves nothing old."""
    five_nodes.execute("CREATE ZONE rowfour (PARTITIONS 1, REPLICAS ALL, QUORUM SIZE 2)")
    (before,) = five_nodes.partitions("ROWFOUR")
    voters, learners = before["stable"]["peers"], before["stable"]["learners"]
    assert (len(voters), len(learners)) == (3, 2)
    with writing(five_nodes, "ROWFOUR") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)

    def is_caught_up() -> bool:
        done = five_nodes.zonectl("verify", "rowfour", "--format", "json")
        return done.returncode == 0

    wait_for("learners that have it all", is_caught_up, pause_s=1.0)
    frozen = [freeze(five_nodes, name) for name in voters]
    try:
        wait_for("the loss", lambda: states(five_nodes, "rowfour")[0]["state"] == "READ_ONLY")
        wait_for("nobody who leads", lambda: leads_nowhere(five_nodes, "rowfour"))
        plan = dry_run(five_nodes, "rowfour")
        assert sorted(plan["to_confirm"]) == sorted(voters)
        assert {each["node"] for each in plan["candidates"]} == set(learners)
        assert all(each["kind"] == "LEARNER" and each["usable"] for each in plan["candidates"])
        revisions = {each["node"]: each["revision"] for each in plan["candidates"]}
        assert revisions[plan["survivor"]] == max(revisions.values())
        confirmed = ",".join(voters)
        line = ("recovery", "reset", "rowfour", "-p", "0", "--empty", "--confirm-dead", confirmed)
        empty = five_nodes.zonectl(*line, "--format", "json")
        assert empty.returncode == 1
        assert json.loads(empty.stderr)["name"] == "COPIES_LEFT"
        reset(five_nodes, "rowfour")
        writer.read_back()
        (after,) = five_nodes.partitions("ROWFOUR")
        assert plan["survivor"] in after["stable"]["peers"]
        assert not set(voters) & set(after["stable"]["peers"])
    finally:
        for agent in frozen:
            agent.resume()

    def has_all() -> bool:
        (partition,) = five_nodes.partitions("ROWFOUR")
        placed = {*partition["stable"]["peers"], *partition["stable"]["learners"]}
        return placed == {*voters, *learners} and partition["status"]["state"] == "DONE"

    wait_for("all of them", has_all)
    writer.read_back()
