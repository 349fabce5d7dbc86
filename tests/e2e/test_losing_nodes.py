"""Nodes are lost one after another: with QUORUM SIZE nodes left, nothing that was written is lost."""

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
