"""A node leaves in order: its replicas move, it restarts and stays drained, and it comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.security.administrator import LOCAL_ADMIN
from tests.e2e.installation import Installation, Writer, wait_for, writing

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("every replica of a node moves away and comes back"),
    pytest.mark.thorough("unit/test_drain has its rules, test_a_node_joins_and_goes_again moves replicas away"),
]
PUT_S = 15.0
"""The time limit of a put."""


def node(installation: Installation, name: str) -> dict[str, Any]:
    nodes = installation.get("/api/v1/nodes")["nodes"]
    found: dict[str, Any] = next(each for each in nodes if each["name"] == name)
    return found


def can_stop(installation: Installation, name: str) -> tuple[int, dict[str, Any]]:
    done = installation.zonectl("node", "can-stop", name, "--format", "json")
    return done.returncode, json.loads(done.stdout)


def bounded(writer: Writer) -> str:
    """No put and no get failed, none took longer than any may; says the longest one."""
    assert writer.errors == []
    assert writer.longest_stall_s < PUT_S
    writer.read_back()
    return f"{len(writer.acknowledged)} puts and gets, the longest of {writer.longest_stall_s * 1000:.0f} ms"


@pytest.mark.row("VOL-001", "VOL-003", "VOL-005")
def test_a_node_leaves_and_comes_back(installation: Installation) -> None:
    """VOL-001, VOL-003, VOL-005: without a timer (AUTO SCALE DOWN is OFF), and without an error of any put or
    get while a node is emptied and while it is given replicas; the longest of them is told. The last nodes
    are refused."""
    installation.execute("CREATE ZONE leaving (PARTITIONS 6, REPLICAS 2)")
    wait_for("members on n3", lambda: node(installation, "n3")["members"] > 0)
    code, told = can_stop(installation, "n3")
    assert (code, told["can_stop"]) == (1, False)
    assert told["losses"]["MAJORITY"] == told["members"] > 0
    with writing(installation, "LEAVING", reads=True) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 5)
        drain = ("node", "drain", "n3", "--wait", "--timeout", "200")
        done = installation.zonectl(*drain, timeout_s=260)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "n3: 0 members left" in done.stderr
        before = len(writer.acknowledged)
        wait_for("writes afterwards", lambda: len(writer.acknowledged) > before + 5 or writer.errors)
    print("away:", bounded(writer))
    assert can_stop(installation, "n3")[0] == 0
    assert node(installation, "n3")["drain"]["state"] == "DRAINED"
    for partition in installation.partitions("leaving"):
        assert sorted(partition["stable"]["peers"]) == ["n1", "n2"]

    pid = node(installation, "n3")["pid"]
    (process,) = installation.processes("app.cli", " node ", "--name n3")
    process.kill()
    wait_for("the node's restart", lambda: node(installation, "n3")["pid"] not in (None, pid))
    assert node(installation, "n3")["drain"]["by"] == LOCAL_ADMIN
    assert installation.get("/api/v1/zones/leaving")["data_nodes"] == ["n1", "n2"]

    assert installation.zonectl("node", "drain", "n2").returncode == 0
    refused = installation.zonectl("node", "drain", "n1")
    assert refused.returncode == 1
    assert "without n1, zone LEAVING has no living data node" in refused.stderr
    with writing(installation, "LEAVING", reads=True) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 5)
        for name in ("n2", "n3"):
            assert installation.zonectl("node", "undrain", name).returncode == 0
        wait_for("data nodes", lambda: len(installation.get("/api/v1/zones/leaving")["data_nodes"]) == 3)
        zone = installation.get("/api/v1/zones/leaving")
        wait_for("convergence", lambda: installation.converged(zone), 200)
    print("back:", bounded(writer))
    assert node(installation, "n3")["members"] > 0
    installation.execute("DROP ZONE leaving")
