"""Nodes are lost: with QUORUM SIZE nodes left nothing that was written is, and timers replace who is silent."""

from __future__ import annotations

import psutil
import pytest

from tests.e2e.installation import Installation, wait_for, writing

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("nodes are killed until the quorum is left")]
PARTITIONS = 2
QUORUM = 3


def lose(installation: Installation, name: str) -> psutil.Process:
    """Kill the node's members; its agent is frozen, so that nobody starts them again."""
    (agent,) = installation.processes("app.cli", " node ", f"--name {name}")
    agent.suspend()
    for member in installation.processes("etcd", "/members/"):
        if member.ppid() == agent.pid:
            member.kill()
    return agent


@pytest.mark.row("IEP-027", shows="service")
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
