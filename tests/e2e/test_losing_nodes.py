"""Nodes are lost: with QUORUM SIZE nodes left nothing that was written is, timers replace who is silent, and
one that is gone for good is removed."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from tests.e2e.installation import Installation, wait_for, writing
from zonekeeper_client import BlockingZoneClient

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("nodes are killed until the quorum is left")]
PARTITIONS = 2
QUORUM = 3


def lose(installation: Installation, name: str) -> psutil.Process:
    """Kill the node's members; its agent is frozen, so that they are not started again."""
    (agent,) = installation.processes("app.cli", " node ", f"--name {name}")
    agent.suspend()
    for member in installation.processes("etcd", "/members/"):
        if member.ppid() == agent.pid:
            member.kill()
    return agent


@pytest.mark.row("IEP-027")
def test_quorum_size_nodes_keep_every_write(five_nodes: Installation) -> None:
    """IEP-027: five replicas with QUORUM SIZE 3 lose two nodes, one after the other, under a writer."""
    five_nodes.execute(f"CREATE ZONE kept (PARTITIONS {PARTITIONS}, REPLICAS 5, QUORUM SIZE {QUORUM})")
    assert len(five_nodes.processes("etcd", "/members/")) == PARTITIONS * 5
    lost = []
    try:
        with writing(five_nodes, "KEPT") as writer:
            for name in ("n1", "n2"):
                before = len(writer.acknowledged)
                wait_for("writes", lambda seen=before: len(writer.acknowledged) > seen + 20)
                lost.append(lose(five_nodes, name))
            before = len(writer.acknowledged)
            wait_for("writes to those that are left", lambda: len(writer.acknowledged) > before + 20)
        assert len(five_nodes.processes("etcd", "/members/")) == PARTITIONS * QUORUM
        writer.read_back()
    finally:
        for agent in lost:
            agent.resume()


def stable_peers(installation: Installation) -> list[list[str]]:
    return [sorted(partition["stable"]["peers"]) for partition in installation.partitions("FOLLOWED")]


@pytest.mark.thorough("integration/test_node_scaling has both")
def test_placement_follows_a_node_that_leaves_and_returns(five_nodes: Installation) -> None:
    """S038: with timers of 0 a node that is silent for its lease is replaced, and takes its place again when it
    is back; the data is readable throughout. Its members go on meanwhile, and one of them leads."""
    wait_for("every node", five_nodes.is_whole)
    five_nodes.execute("CREATE ZONE followed (PARTITIONS 2, REPLICAS 3, AUTO SCALE UP 0, AUTO SCALE DOWN 0)")
    before = stable_peers(five_nodes)
    gone = before[0][0]
    (agent,) = five_nodes.processes("app.cli", " node ", f"--name {gone}")
    with writing(five_nodes, "FOLLOWED") as writer:
        agent.suspend()
        try:
            wait_for("the others", lambda: not any(gone in each for each in stable_peers(five_nodes)))
        finally:
            agent.resume()
        wait_for("its return", lambda: stable_peers(five_nodes) == before)
    writer.read_back()


KEYS = tuple(f"key-{number}" for number in range(24))
ZONES = ("REMADE", "REFILLED")


@pytest.mark.thorough("unit/test_node_removal, and simulation/test_joiner_gone_for_good")
def test_a_node_that_is_gone_for_good_is_removed(five_nodes: Installation) -> None:
    """Remove a node that is gone for good: its replicas are made anew elsewhere, a drain of it ends, and its
    machine comes back as a new node."""
    five_nodes.execute("CREATE ZONE remade (PARTITIONS 4, REPLICAS 3)")
    five_nodes.execute("CREATE ZONE refilled (PARTITIONS 8, REPLICAS 2) STORAGE PROFILES ['bulk']")
    with BlockingZoneClient([five_nodes.url], **five_nodes.login) as client:
        for zone in ZONES:
            for key in KEYS:
                client.put(zone, key, "v")
    gone = five_nodes.partitions("REMADE")[0]["stable"]["peers"][-1]
    directory = five_nodes.directory / "nodes" / gone
    remove = ("node", "remove", gone, "--yes", "--reason", "mainboard")
    (up,) = five_nodes.processes("app.cli", " up ")
    up.suspend()
    try:
        for process in five_nodes.processes(f"--name {gone} "):
            process.kill()
        wait_for("their end", lambda: not five_nodes.processes(str(directory), "--data-dir"))
        wait_for("the end of its lease", lambda: not shown(five_nodes, gone)["alive"])
        assert shown(five_nodes, gone)["members"] > 0
        asked = five_nodes.zonectl(*remove)
        assert (asked.returncode, "REMADE, REFILLED to be rebuilt" in asked.stderr) == (0, True), asked.stderr
        drained = five_nodes.zonectl("node", "drain", gone, "--wait", "--timeout", "200", timeout_s=260)
        assert drained.returncode == 0, drained.stdout + drained.stderr
        removed = five_nodes.zonectl(*remove, "--wait", "--timeout", "200", timeout_s=260)
        assert removed.stdout.splitlines()[-1:] == [f"node {gone} removed"], removed.stdout + removed.stderr
        assert gone not in [node["name"] for node in five_nodes.get("/api/v1/nodes")["nodes"]]
        for zone, replicas in zip(ZONES, (3, 2), strict=True):
            for partition in five_nodes.partitions(zone):
                on = partition["stable"]["peers"]
                assert (len(on), gone in on) == (replicas, False), partition
                assert {each["node"] for each in (*partition["members"], *partition["copies"])} == set(on)
        number = five_nodes.get("/api/v1/zones/remade")["zone_id"]
        assert len(five_nodes.processes("etcd", f"/members/{number}-")) == 12
        assert_all_is_there(five_nodes)
    finally:
        up.resume()
    cause = wait_for("its machine's return", lambda: removals_told(five_nodes))
    assert f"{directory} is the directory that node {gone} had before it was removed for good" in cause[0]
    assert not five_nodes.processes("etcd", str(directory)), "no member of before runs"
    assert not shown(five_nodes, gone)
    log = (five_nodes.directory / "logs" / f"{gone}.log").read_text()
    assert log.count("had before it was removed for good") == 1
    (held,) = five_nodes.processes("app.cli", " node ", f"--name {gone} ")
    directory.rename(directory.with_name(f"{gone}.removed"))
    held.kill()
    wait_for("a new node", five_nodes.is_whole)
    wait_for("nothing is held", lambda: not removals_told(five_nodes))
    assert shown(five_nodes, gone)["drain"] is None
    assert_all_is_there(five_nodes)
    for zone in ZONES:
        five_nodes.execute(f"DROP ZONE {zone}")


def shown(installation: Installation, name: str) -> dict[str, Any]:
    nodes = installation.get("/api/v1/nodes")["nodes"]
    return next((node for node in nodes if node["name"] == name), {})


def removals_told(installation: Installation) -> list[str]:
    causes = [part["cause"] for part in installation.get("/readyz")["degraded"]]
    return [cause for cause in causes if cause.startswith("NODE_REMOVED: ")]


def assert_all_is_there(installation: Installation) -> None:
    with BlockingZoneClient([installation.url], **installation.login) as client:
        for zone in ZONES:
            values = {key: client.get(zone, key) for key in KEYS}
            assert {item.value if item is not None else None for item in values.values()} == {"v"}, values
