"""``zonectl node drain``, ``undrain``, ``can-stop`` and ``remove``: what they say and send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request

DRAIN = "/api/v1/nodes/n3/drain"
MARK = {"state": "DRAINING", "by": "alice", "reason": "disks", "since": "2026-01-01T10:00:00Z"}
DRAINED: dict[str, Any] = {"node": "n3", "changed": True, "members": 7, "copies": 0, "drain": MARK}


def test_drain(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"PUT {DRAIN}"] = (200, DRAINED)
    assert main(["node", "drain", "n3", "--by", "alice", "--reason", "disks"]) == 0
    assert api.requests[0].body == {"by": "alice", "reason": "disks"}
    assert capsys.readouterr().out == "node n3 draining, 7 members left\n"
    assert main(["node", "drain", "n3", "--by", "alice", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == DRAINED


def test_drain_and_wait(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints how many are left whenever that changes, until there are none."""
    left, copies = iter((7, 7, 2, 0, 0)), iter((0, 0, 0, 1, 0))

    def nodes(_: Request) -> tuple[int, dict[str, Any]]:
        return 200, {"nodes": [{"name": "n3", "members": next(left), "copies": next(copies), "drain": MARK}]}

    api.answers[f"PUT {DRAIN}"] = (200, DRAINED)
    api.answers["GET /api/v1/nodes"] = nodes
    assert main(["node", "drain", "n3", "--by", "alice", "--wait"]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        *("n3: 7 members left", "n3: 2 members left", "n3: 0 members, 1 copy left", "n3: 0 members left")
    ]
    assert shown.out == "node n3 drained\n"


def test_who_does_not_see_all_zones_waits_for_the_state(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is told no numbers."""
    states = iter(("DRAINING", "DRAINING", "DRAINED"))
    unknown = {"members": None, "copies": None}

    def nodes(_: Request) -> tuple[int, dict[str, Any]]:
        return 200, {"nodes": [{"name": "n3", **unknown, "drain": {**MARK, "state": next(states)}}]}

    api.answers[f"PUT {DRAIN}"] = (200, {**DRAINED, **unknown})
    api.answers["GET /api/v1/nodes"] = nodes
    assert main(["node", "drain", "n3", "--by", "alice"]) == 0
    assert capsys.readouterr().out == "node n3 draining, replicas left\n"
    assert main(["node", "drain", "n3", "--by", "alice", "--wait"]) == 0
    assert capsys.readouterr().out == "node n3 drained\n"
    assert list(states) == []


def test_a_drain_that_takes_too_long_is_4(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"PUT {DRAIN}"] = (200, DRAINED)
    api.answers["GET /api/v1/nodes"] = (
        200,
        {"nodes": [{"name": "n3", "members": 7, "copies": 0, "drain": MARK}]},
    )
    assert main(["node", "drain", "n3", "--by", "alice", "--wait", "--timeout", "0"]) == 4
    assert "7 members left" in capsys.readouterr().out


def test_undrain(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"DELETE {DRAIN}"] = (200, {**DRAINED, "drain": None})
    assert main(["node", "undrain", "n3"]) == 0
    assert capsys.readouterr().out == "node n3 back in service\n"
    api.answers[f"DELETE {DRAIN}"] = (200, {**DRAINED, "drain": None, "changed": False})
    assert main(["node", "undrain", "n3"]) == 0
    assert capsys.readouterr().out == "node n3 was not drained\n"


def test_can_stop(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    loss = {"zone": "ORDERS", "zone_id": 1, "partition": 4, "loss": "MAJORITY", "detail": "n1 of n1, n3 ..."}
    answer: dict[str, Any] = {
        "node": "n3",
        "can_stop": False,
        "alive": True,
        "drain": None,
        "members": 7,
        "copies": 0,
    }
    answer |= {"losses": {"MAJORITY": 1}, "partitions": [loss]}
    api.answers["GET /api/v1/nodes/n3/can-stop"] = (200, answer)
    assert main(["node", "can-stop", "n3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node n3 cannot be stopped: 7 members; 1 MAJORITY"
    assert lines[2].split(maxsplit=2) == ["ORDERS.4", "MAJORITY", "n1 of n1, n3 ..."]
    yes = {**answer, "can_stop": True, "losses": {}, "partitions": [], "members": 0, "copies": 256}
    api.answers["GET /api/v1/nodes/n3/can-stop"] = (200, yes)
    assert main(["node", "can-stop", "n3"]) == 0
    assert capsys.readouterr().out == "node n3 can be stopped: 0 members, 256 copies\n"
    assert main(["node", "can-stop", "n3", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == yes


REMOVAL = "POST /api/v1/nodes/n3/removal"
PLANNED: dict[str, Any] = {
    "node": "n3",
    "state": "PLANNED",
    "zones": {"ORDERS": 5, "PEOPLE": 2},
    "losses": {},
    "partitions": [],
}


def test_remove_and_wait(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan first; then the same is asked until the node is removed."""
    states = [
        PLANNED,
        {**PLANNED, "state": "DRAINING"},
        {**PLANNED, "state": "DRAINING", "zones": {"PEOPLE": 1}},
        {**PLANNED, "state": "REMOVED", "zones": {}},
    ]
    answers = iter(states)
    api.answers[REMOVAL] = lambda _: (200, next(answers))
    assert main(["node", "remove", "n3", "--by", "alice", "--reason", "burnt", "--yes", "--wait"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "node n3 removed\n"
    assert shown.err.splitlines() == [
        *["n3: 7 replicas of ORDERS, PEOPLE to be rebuilt on other nodes"] * 2,
        "n3: 1 replica of PEOPLE to be rebuilt on other nodes",
        "n3: no zone needs it",
    ]
    asked = {"by": "alice", "reason": "burnt"}
    assert [each.body for each in api.requests] == [{**asked, "dry_run": True}, asked, asked, asked]


def test_remove_asks_first(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """A script says --yes; a dry run and a node that is needed are not asked about."""
    api.answers[REMOVAL] = (200, PLANNED)
    assert main(["node", "remove", "n3", "--by", "alice"]) == 64
    assert "review the line above, then add --yes" in capsys.readouterr().err
    assert main(["node", "remove", "n3", "--by", "alice", "--dry-run"]) == 0
    assert capsys.readouterr().out == "node n3 can be removed\n"
    loss = {"zone": "ORDERS", "zone_id": 1, "partition": 4, "loss": "MAJORITY", "detail": "n1 of n1, n3 ..."}
    api.answers[REMOVAL] = (200, {**PLANNED, "losses": {"MAJORITY": 1}, "partitions": [loss]})
    assert main(["node", "remove", "n3", "--by", "alice", "--yes"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node n3 is needed: 1 MAJORITY"
    assert lines[2].split(maxsplit=2) == ["ORDERS.4", "MAJORITY", "n1 of n1, n3 ..."]
    assert all(each.body["dry_run"] for each in api.requests)


def test_remove_without_waiting(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[REMOVAL] = (200, {**PLANNED, "state": "DRAINING"})
    assert main(["node", "remove", "n3", "--by", "alice", "--yes"]) == 0
    assert capsys.readouterr().out == "node n3 draining: repeat the command once nothing is left\n"
    assert main(["node", "remove", "n3", "--by", "alice", "--yes", "--wait", "--timeout", "0"]) == 4


def test_refusals(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    detail = "without n3, zone ORDERS has no living data node"
    api.problem(f"PUT {DRAIN}", 409, "DRAIN_LEAVES_NO_DATA_NODE", detail, sqlState="55006")
    assert main(["node", "drain", "n3", "--by", "alice"]) == 1
    assert detail in capsys.readouterr().err
    assert main(["node", "drain"]) == 64
    assert main(["node", "can-stop", "n3", "--format", "csv"]) == 64


def test_the_node_itself_still_needs_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node"]) == 64
    assert "a node's name is 1 to 63" in capsys.readouterr().err
