"""An operation from its begin to its reversal, over real nodes and real groups, with its controller killed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.security.administrator import LOCAL_ADMIN
from tests.e2e.installation import Installation, wait_for, writing

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("one operation is altered, paused, resumed, waited for and reversed"),
]

PARTITIONS = 4


def newest(installation: Installation) -> dict[str, Any]:
    found: dict[str, Any] = installation.get("/api/v1/operations?zone=moved&page_size=1")["operations"][0]
    return found


def act(installation: Installation, action: str, name: str, *more: str) -> dict[str, Any]:
    done = installation.zonectl("operations", action, name, "--format", "json", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kill_controller(installation: Installation) -> None:
    """The API goes with it; the supervisor brings both back."""
    (process,) = installation.processes("app.cli", " serve ", "--controllers")
    process.kill()
    wait_for("the server's return", installation.is_whole)


def replicas(installation: Installation) -> list[list[str]]:
    return [sorted(each["stable"]["peers"]) for each in installation.partitions("moved")]


@pytest.mark.row("VOL-020", "VOL-088..090", "VOL-093", "VOL-104")
def test_altered_paused_resumed_waited_for_and_reversed(installation: Installation) -> None:
    """VOL-020, VOL-088, VOL-089, VOL-090, VOL-093, VOL-104: one id from begin to end, through
    kills of the controller, while a writer goes on; then back, by an operation of its own."""
    installation.execute(f"CREATE ZONE moved (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    wait_for("the end of the creation", lambda: newest(installation)["state"] == "DONE")
    before = replicas(installation)
    assert installation.zonectl("rebalance", "limits", "--zone-moves", "1").returncode == 0
    # Otherwise all may have begun before the operation can be paused.
    assert installation.zonectl("rebalance", "pause", "--by", "night").returncode == 0
    asked = ("sql", "-e", "ALTER ZONE moved SET (REPLICAS 2)", "--reason", "more readers", "--format", "jsonl")
    result = json.loads(installation.zonectl(*asked).stdout)
    operation = wait_for("the operation", lambda: running(installation, "ALTER_ZONE"))
    name = operation["operation_id"]
    assert operation["catalog_version"] == result["catalog_version"]
    assert operation["reason"] == "more readers"
    assert ": more readers" in installation.zonectl("operations", "show", name).stdout
    assert "more readers" in installation.zonectl("audit", "--of", "MOVED", "--count", "1").stdout
    paused = act(installation, "pause", name, "--by", "alice", "--reason", "inventory")
    assert (paused["state"], paused["cause"]) == ("PAUSED", f"PAUSED: the zone, by {LOCAL_ADMIN}: inventory")
    assert installation.zonectl("rebalance", "resume").returncode == 0
    kill_controller(installation)
    wait_for("rest", lambda: not any(each["pending"] for each in installation.partitions("moved")))
    shown = act(installation, "show", name)
    assert shown["state"] == "PAUSED"
    assert {each["cause"] for each in shown["waiting"]} == {f"PAUSED: the zone, by {LOCAL_ADMIN}: inventory"}
    done = shown["progress"]["partitions"]["done"]
    assert done == 0
    wait = ("operations", "wait", name, "--format", "json", "--timeout", "300")
    with installation.zonectl_beside(*wait) as waits, writing(installation, "MOVED") as writer:
        # Then it has had an answer: a command that begins without a server gives up.
        assert name in waits.stderr.readline()
        act(installation, "resume", name, "--by", "alice")
        wait_for("progress", lambda: counts(installation, name)["done"] > done, 200)
        kill_controller(installation)
        told, errors = waits.communicate(timeout=360)
    assert waits.returncode == 0, errors
    over = json.loads(told)
    assert (over["operation_id"], over["state"]) == (name, "DONE")
    assert over["progress"]["partitions"]["done"] == PARTITIONS
    assert {len(each) for each in replicas(installation)} == {2}
    assert writer.acknowledged
    writer.read_back()

    reverse = act(installation, "reverse", name, "--by", "bob", "--reason", "too slow")
    assert reverse["reverses"] == name
    back = wait_for("the reversal", lambda: running(installation, "REVERSE", "DONE"))
    assert (back["reverses"], back["by"], back["reason"]) == (name, LOCAL_ADMIN, "too slow")
    kill_controller(installation)
    waited = installation.zonectl("operations", "wait", back["operation_id"], "--timeout", "300", timeout_s=330)
    assert waited.returncode == 0, waited.stderr
    assert replicas(installation) == before
    assert installation.get("/api/v1/zones/moved")["replicas"] == 1
    assert act(installation, "show", name)["state"] == "REVERSED"
    writer.read_back()
    refused = installation.zonectl("operations", "reverse", name)
    assert refused.returncode == 1
    assert "REVERSE_IMPOSSIBLE" in refused.stderr
    actions = [each["action"] for each in installation.get("/api/v1/audit?page_size=50")["records"]]
    for action in ("REVERSE OPERATION", "RESUME OPERATION", "PAUSE OPERATION", "ALTER ZONE", "CHANGE LIMITS"):
        assert action in actions
    assert installation.zonectl("rebalance", "limits", "--zone-moves", "none").returncode == 0
    installation.execute("DROP ZONE moved")


def running(installation: Installation, kind: str, *states: str) -> dict[str, Any] | None:
    """The newest operation, if it is of this kind and goes on, or is in one of ``states``."""
    found = newest(installation)
    wanted = ("WAITING", "RUNNING", "PAUSED", *states)
    return found if found["kind"] == kind and found["state"] in wanted else None


def counts(installation: Installation, name: str) -> dict[str, Any]:
    found = installation.get(f"/api/v1/operations/{name}?plan=false")
    partitions: dict[str, Any] = found["progress"]["partitions"]
    return partitions
