"""kill -9 of a majority: what is shown, what the dry run says, and the way back with every write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from tests.e2e.installation import ANSWER_S, Installation, wait_for, writing
from tests.fixtures.installation_dumps import endpoint
from tests.fixtures.published_fences import publish_fences
from tests.fixtures.recovery_commands import dry_run, freeze, led_partition, reset, states

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("majorities are killed, and leases and elections waited for"),
]


@pytest.fixture(autouse=True)
def without_zones(five_nodes: Installation) -> Iterator[None]:
    """Drop all zones after the test, as members of no use take time from those that come."""
    yield
    for zone in five_nodes.get("/api/v1/zones")["zones"]:
        five_nodes.execute(f"DROP ZONE {zone['name']}")


async def fenced(installation: Installation) -> None:
    """All of its nodes have published how long they serve unheard."""
    metastore = EtcdMetastore([endpoint(installation)], tls=installation.tls)
    try:
        await publish_fences(metastore, Keyspace())
    finally:
        await metastore.close()


def follows_nobody(installation: Installation, zone: str, name: str) -> bool:
    """True if the member itself names no leader: a leader sends its log for an election time after it lost its
    majority."""
    (partition,) = installation.partitions(zone)
    (url,) = (each["client_url"] for each in partition["members"] if each["node"] == name)
    status = f"{url}/v3/maintenance/status"
    answer = httpx.post(status, json={}, timeout=ANSWER_S, verify=installation.machines)
    return "leader" not in answer.raise_for_status().json()


@pytest.mark.row("I3-060", "IEP-049", "IEP-050", "IEP-051", "IEP-059", "IEP-061")
def test_a_lost_majority_is_reset_by_hand(five_nodes: Installation) -> None:
    """I3-060, IEP-049, IEP-050, IEP-051, IEP-059, IEP-061, S186: three replicas lose two at once. Nothing is
    promoted and nothing written; the reset is refused before; it keeps every write that was acknowledged, and
    the group is whole again with other nodes; the lost ones come back and are emptied."""
    five_nodes.execute("CREATE ZONE lost (PARTITIONS 1, REPLICAS 3)")
    with writing(five_nodes, "LOST") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)
    refused = five_nodes.zonectl("recovery", "reset", "lost")
    assert refused.returncode == 1
    assert "RECOVERY_NOT_NEEDED (5201, 55000)" in refused.stderr
    (before,) = five_nodes.partitions("LOST")
    names = before["stable"]["peers"]
    frozen = [freeze(five_nodes, name) for name in names[1:]]
    try:
        wait_for("the loss", lambda: states(five_nodes, "lost")[0]["state"] == "READ_ONLY")
        told = five_nodes.zonectl("recovery", "states", "lost", "--format", "json")
        assert (told.returncode, json.loads(told.stdout)[0]["state"]) == (1, "READ_ONLY")
        put = five_nodes.request("PUT", "/api/v1/zones/LOST/kv/k", {"value": "v"})
        assert put.status_code == 504
        (during,) = five_nodes.partitions("LOST")
        assert (during["stable"], during["pending"]) == (before["stable"], None)
        plan = dry_run(five_nodes, "lost")
        assert (plan["survivor"], plan["written"], plan["orderly"]) == (names[0], False, True)
        assert plan["possibly_lost_entries"] >= 0
        assert five_nodes.partitions("LOST")[0]["pending"] is None
        assert sorted(plan["to_confirm"]) == sorted(names[1:])
        unconfirmed = five_nodes.zonectl("recovery", "reset", "lost", "--confirm-dead", names[1])
        assert unconfirmed.returncode == 1
        assert f"confirm exactly {', '.join(sorted(names[1:]))}" in unconfirmed.stderr
        assert "LOSS_NOT_CONFIRMED (5209, 55000)" in unconfirmed.stderr
        empty = five_nodes.zonectl("recovery", "reset", "lost", "-p", "0", "--empty")
        assert empty.returncode == 1
        assert "COPIES_LEFT (5208, 55000)" in empty.stderr
        assert five_nodes.partitions("LOST")[0]["pending"] is None
        assert "1/1 accept writes" in reset(five_nodes, "lost")
        writer.read_back()
        wait_for("three replicas", lambda: len(five_nodes.partitions("LOST")[0]["stable"]["peers"]) == 3)
        writer.read_back()
        put = five_nodes.request("PUT", "/api/v1/zones/LOST/kv/after", {"value": "v"})
        assert put.status_code == 200
    finally:
        for agent in frozen:
            agent.resume()
    peers = set(five_nodes.partitions("LOST")[0]["stable"]["peers"])
    assert names[0] in peers

    def emptied() -> bool:
        members = {each["node"] for each in five_nodes.partitions("LOST")[0]["members"]}
        return members == peers

    wait_for("the lost members to be emptied", emptied)
    writer.read_back()


@pytest.mark.thorough("integration/test_node_recovery chooses between copies")
@pytest.mark.row("IEP-059", "IEP-060")
def test_the_most_advanced_copy_goes_on(five_nodes: Installation) -> None:
    """IEP-059, IEP-060: of two survivors one was away while the others wrote; the dry run shows how far each
    copy goes, and the other one is chosen, with every write that it knew."""
    wait_for("every node", lambda: all(each["alive"] for each in five_nodes.get("/api/v1/nodes")["nodes"]))
    five_nodes.execute("CREATE ZONE apart (PARTITIONS 1, REPLICAS 5, QUORUM SIZE 3)")
    before = led_partition(five_nodes, "APART")
    late = next(name for name in before["stable"]["peers"] if name != before["leader"])
    away = freeze(five_nodes, late)
    with writing(five_nodes, "APART") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)
    others = [name for name in before["stable"]["peers"] if name != late]
    frozen = [freeze(five_nodes, name) for name in others[1:]]
    try:
        # Else the leader brings the late one up to date before it steps down.
        wait_for("no leader", lambda: follows_nobody(five_nodes, "APART", others[0]))
        away.resume()

        def both() -> dict[str, Any] | None:
            plan = dry_run(five_nodes, "apart")
            return plan if {each["node"] for each in plan["candidates"]} == {others[0], late} else None

        plan = wait_for("both copies", both, pause_s=1.0)
        copies = {each["node"]: each["committed"] for each in plan["candidates"]}
        assert copies[late] < copies[others[0]]
        assert [each["usable"] for each in plan["candidates"]] == [True, True]
        assert plan["survivor"] == plan["candidates"][0]["node"] == others[0]
        reset(five_nodes, "apart")
        writer.read_back()
    finally:
        for agent in (away, *frozen):
            agent.resume()


@pytest.mark.thorough("integration/test_found_from_learner has learners left alone")
@pytest.mark.row("IEP-050", "IEP-051", "IEP-059", "IEP-060")
def test_a_lost_majority_beside_learners(five_nodes: Installation) -> None:
    """IEP-050, IEP-051, IEP-059, IEP-060: two of three voters are killed, two learners live. They make no
    majority and nothing is promoted; the reset founds the group on the voter that is left, and its learners
    come back to it with every write."""
    wait_for("every node", lambda: all(each["alive"] for each in five_nodes.get("/api/v1/nodes")["nodes"]))
    five_nodes.execute("CREATE ZONE beside (PARTITIONS 1, REPLICAS 5, QUORUM SIZE 2)")
    (before,) = five_nodes.partitions("BESIDE")
    voters = before["stable"]["peers"]
    assert (len(voters), len(before["stable"]["learners"])) == (3, 2)
    with writing(five_nodes, "BESIDE") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)
    frozen = [freeze(five_nodes, name) for name in voters[1:]]
    try:
        wait_for("the loss", lambda: states(five_nodes, "beside")[0]["state"] == "READ_ONLY")
        (during,) = five_nodes.partitions("BESIDE")
        assert (during["stable"], during["pending"]) == (before["stable"], None)

        reset(five_nodes, "beside")
        writer.read_back()
        (after,) = five_nodes.partitions("BESIDE")
        assert voters[0] in after["stable"]["peers"]
    finally:
        for agent in frozen:
            agent.resume()


@pytest.mark.row("R1")
def test_a_group_that_serves_is_left_alone(five_nodes: Installation) -> None:
    """R1: two of three nodes are cut off from the metastore alone: their leases are gone, and their members
    vote. A reset is refused whatever is confirmed, and puts go on."""
    wait_for("every node", lambda: all(each["alive"] for each in five_nodes.get("/api/v1/nodes")["nodes"]))
    five_nodes.execute("CREATE ZONE cut (PARTITIONS 1, REPLICAS 3)")
    before = led_partition(five_nodes, "CUT")
    names = [name for name in before["stable"]["peers"] if name != before["leader"]]
    assert len(names) == 2
    agents = [five_nodes.processes("app.cli", " node ", f"--name {name}")[0] for name in names]
    for agent in agents:
        agent.suspend()
    try:
        wait_for("the leases to end", lambda: states(five_nodes, "cut")[0]["state"] == "READ_ONLY")
        for more in (("--dry-run",), ("--confirm-dead", ",".join(names))):
            refused = five_nodes.zonectl("recovery", "reset", "cut", "-p", "0", *more)
            assert refused.returncode == 1
            assert "RECOVERY_NOT_NEEDED (5201, 55000)" in refused.stderr
            assert "answers with a majority of its group" in refused.stderr
        put = five_nodes.request("PUT", "/api/v1/zones/CUT/kv/k", {"value": "v"})
        assert put.status_code == 200
        assert five_nodes.partitions("CUT")[0]["pending"] is None
    finally:
        for agent in agents:
            agent.resume()


@pytest.mark.thorough("contract/test_high_availability, and H3 in test_fenced_zones")
@pytest.mark.row("IEP-051")
def test_a_zone_that_helps_itself(five_nodes: Installation) -> None:
    """IEP-051, S191: go on with the living node of a HIGH_AVAILABILITY zone after the delay, without an
    operator; the others come back into it."""
    wait_for("every node", lambda: all(each["alive"] for each in five_nodes.get("/api/v1/nodes")["nodes"]))
    asyncio.run(fenced(five_nodes))
    five_nodes.execute("CREATE ZONE ha (PARTITIONS 1, REPLICAS 3, CONSISTENCY MODE 'HIGH_AVAILABILITY')")
    with writing(five_nodes, "HA") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)
    names = five_nodes.partitions("HA")[0]["stable"]["peers"]
    frozen = [freeze(five_nodes, name) for name in names[1:]]
    try:
        wait_for("the reset", lambda: states(five_nodes, "ha")[0]["generation"])
        wait_for(
            "one replica of the three that the zone asks for",
            lambda: states(five_nodes, "ha")[0]["state"] == "DEGRADED",
        )
        wait_for("the cause", lambda: "1 of 3" in five_nodes.partitions("HA")[0]["status"]["cause"])
        assert five_nodes.partitions("HA")[0]["stable"]["peers"] == names[:1]
        writer.read_back()
    finally:
        for agent in frozen:
            agent.resume()
    wait_for("all of them", lambda: set(five_nodes.partitions("HA")[0]["stable"]["peers"]) == set(names))
    wait_for("all is well", lambda: states(five_nodes, "ha")[0]["state"] == "AVAILABLE")
    writer.read_back()


@pytest.mark.thorough("integration/test_node_recovery has it over agents")
def test_restart_with_clean_up(five_nodes: Installation) -> None:
    """S206: a member gives its data up and comes back as a new one; the last copies do not."""
    five_nodes.execute("CREATE ZONE again (PARTITIONS 1, REPLICAS 3)")
    with writing(five_nodes, "AGAIN") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 50)
    members = {each["node"]: each["peer_url"] for each in five_nodes.partitions("AGAIN")[0]["members"]}
    name = min(members)
    done = five_nodes.zonectl("recovery", "restart", "again", "-p", "0", "--node", name, "--cleanup", "--wait")
    assert done.returncode == 0, done.stderr

    def renewed() -> bool:
        (found,) = five_nodes.partitions("AGAIN")
        now = {each["node"]: each["peer_url"] for each in found["members"]}
        return found["status"]["state"] == "DONE" and now.get(name) not in (None, members[name])

    wait_for("a new member", renewed)
    writer.read_back()
    five_nodes.execute("CREATE ZONE two (PARTITIONS 1, REPLICAS 2)")
    node = five_nodes.partitions("TWO")[0]["stable"]["peers"][0]
    refused = five_nodes.zonectl("recovery", "restart", "two", "--node", node, "--cleanup", "--format", "json")
    assert refused.returncode == 1
    assert json.loads(refused.stderr)["name"] == "NOT_ENOUGH_ALIVE_NODES"
