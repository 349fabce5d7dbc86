"""Zones that a reset has left short are filled up when nodes are back, and say until then that they are
short."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.judged_alerts import ServerJudge, fires
from tests.fixtures.recovery_commands import freeze, leads_nowhere, reset, states

ALERT = "ReplicasMissing"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("majorities are killed, and leases waited for"),
    pytest.mark.thorough("contract/test_filling_up fills zones up, test_recovery resets one"),
]


def running(partition: dict[str, Any]) -> set[str]:
    """Nodes with a member or a mirror that runs."""
    return {
        member["node"]
        for member in partition["members"]
        if member["state"] == "RUNNING" or (member["mirror"] or {}).get("state") == "RUNNING"
    }


@pytest.mark.row("IEP-059")
@pytest.mark.parametrize(
    "options",
    ["REPLICAS 3, NODES FILTER '$[?(@.region == \"EU\")]'", "REPLICAS ALL, QUORUM SIZE 2"],
    ids=["three", "all"],
)
def test_a_zone_is_whole_again_after_a_reset(five_nodes: Installation, options: str) -> None:
    """IEP-059: all but so many nodes are lost that no majority is left. The survivors go on alone, and the zone
    waits with REPLICAS_MISSING, however long. The first that is back has its replica without waiting for the
    other; when both are, members run on all again, with every acknowledged value, and the zone is
    done. An alert fires until then."""
    zone = "short"
    five_nodes.execute(f"CREATE ZONE {zone} (PARTITIONS 1, {options})")
    with writing(five_nodes, zone.upper()) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
    (before,) = five_nodes.partitions(zone)
    names = before["stable"]["peers"]
    everybody = {*names, *before["stable"]["learners"]}
    frozen = [freeze(five_nodes, name) for name in names[1:]]
    try:
        wait_for("the loss", lambda: states(five_nodes, zone)[0]["state"] == "READ_ONLY")
        wait_for("survivors that say they lead nothing", lambda: leads_nowhere(five_nodes, zone))
        reset(five_nodes, zone)
        writer.read_back()
        asked = len(everybody)
        waits = f"REPLICAS_MISSING: {asked - 2} of {asked} replicas, awaits "

        def status() -> dict[str, str]:
            said: dict[str, str] = five_nodes.partitions(zone)[0]["status"]
            return said

        wait_for("the survivors", lambda: status()["cause"].startswith(waits))
        assert status()["state"] == "WAITING"
        assert fires(five_nodes, ALERT)["labels"] == {"zone": zone.upper()}
        frozen[0].resume()
        back, away = names[1:3]
        waits = f"REPLICAS_MISSING: {asked - 1} of {asked} replicas, awaits {away}"

        def has_one_more() -> bool:
            """True once all nodes but the absent one have a replica, without a move that names that one."""
            (partition,) = five_nodes.partitions(zone)
            pending = partition["pending"] or {"peers": (), "learners": ()}
            assert away not in {*pending["peers"], *pending["learners"]}
            return running(partition) == everybody - {away} and partition["status"]["cause"] == waits

        wait_for(f"the replica on {back}", has_one_more)
        verified = five_nodes.zonectl("verify", zone)
        assert verified.returncode == 1
        assert f"{asked - 1} of {asked} replicas read: 1 replica is missing" in verified.stdout
    finally:
        for agent in frozen:
            agent.resume()

    def has_all() -> bool:
        (partition,) = five_nodes.partitions(zone)
        return running(partition) == everybody and partition["status"]["state"] == "DONE"

    wait_for("every replica", has_all)
    judge = ServerJudge(five_nodes.get)
    wait_for("the end of the alert", lambda: ALERT not in judge.states())
    writer.read_back()
    five_nodes.execute(f"DROP ZONE {zone}")
