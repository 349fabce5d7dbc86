"""``zonectl recovery``: what it asks, prints and waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request

NOON = "2026-01-01T12:00:00Z"
STATES = "GET /api/v1/zones/ORDERS/recovery/states"
RESET = "POST /api/v1/zones/ORDERS/recovery/reset"
RESTART = "POST /api/v1/zones/ORDERS/recovery/restart"


def state(partition: int, name: str, *, alive: int = 1, recovering: str | None = None) -> dict[str, Any]:
    replica = {"node": "n1", "state": "HEALTHY", "voter": True, "committed": 7, "last": 9, "reason": ""}
    return {
        "partition": partition,
        "state": name,
        "voters": 3,
        "voters_alive": alive,
        "generation": 0,
        "recovering_on": recovering,
        "restarting": [],
        "replicas": [replica],
    }


def candidate(node: str, kind: str, revision: int | None, **changed: Any) -> dict[str, Any]:
    body = {
        "node": node,
        "kind": kind,
        "revision": revision,
        "generation": 0,
        "state": "RUNNING",
        "usable": True,
        "by_name": False,
        "reason": "",
        "committed": 7,
        "last": 9,
    }
    return {**body, **changed}


def reset(partition: int, **changed: Any) -> dict[str, Any]:
    found = {
        "partition": partition,
        "written": True,
        "survivor": "n1",
        "then": {"peers": ["n1", "n4"], "learners": []},
        "empty": False,
        "possibly_lost_entries": 2,
        "orderly": True,
        "missed_revisions": 0,
        "candidates": [candidate("n1", "VOTER", 42)],
        "silent": [],
        "to_confirm": [],
        "unproven": {},
        "refusal": None,
    }
    return {**found, **changed}


def test_states(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 while a partition takes no writes."""
    told = {"since": NOON, "advice": "Start n2."}
    api.answers[STATES] = (
        200,
        {
            "partitions": [
                state(0, "AVAILABLE", alive=3),
                {**state(1, "READ_ONLY"), **told},
            ]
        },
    )
    assert main(["recovery", "states", "orders"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "partition",
        "state",
        "since",
        "voters",
        "node",
        "replica",
        "votes",
        "committed",
        "last",
        "reason",
    ]
    assert lines[-1] == "Start n2."
    assert lines[2].split() == ["1", "READ_ONLY", NOON, "1/3", "n1", "HEALTHY", "yes", "7", "9"]
    api.answers[f"{STATES}?partition=3&partition=4"] = (200, {"partitions": [state(3, "DEGRADED")]})
    assert main(["recovery", "states", "orders", "-p", "3", "-p", "4", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [state(3, "DEGRADED")]


@pytest.mark.parametrize(("shown", "code"), [("SERVING", 0), ("NOT_SERVING", 1), ("UNKNOWN", 1)])
def test_what_is_told_while_the_metastore_is_silent(
    api: ApiStub, capsys: pytest.CaptureFixture[str], shown: str, code: int
) -> None:
    """The exit code is that of the states. A line on stderr says as of when they are, in each format."""
    body = {"partitions": [state(0, "AVAILABLE"), state(1, shown)], "metastore_silent_since": NOON}
    api.answers[STATES] = (200, body)
    for form in ("table", "json"):
        assert main(["recovery", "states", "orders", "--format", form]) == code
        said = capsys.readouterr()
        assert said.err.splitlines() == [f"As of {NOON}: the metastore has been silent since then."]
        assert shown in said.out


def test_dry_run(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run prints what would be lost, and waits for nothing."""
    api.answers[RESET] = (200, {"partitions": [reset(0), reset(1, orderly=False), reset(2, empty=True)]})
    assert main(["recovery", "reset", "orders", "--dry-run", "--wait"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("  ")[0] == "0"
    assert "2 entries" in lines[1]
    assert "stopped in order" in lines[1]
    assert "crashed" in lines[2]
    assert "EVERYTHING" in lines[3]
    (request,) = api.requests
    assert request.body == {"partitions": [], "empty": False, "dry_run": True}


@pytest.mark.row("R2", "R7")
def test_a_dry_run_shows_every_copy(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """R2, R7: what each has, which of them is used by name only, what must be confirmed, and whose revision
    proves nothing."""
    kept = candidate(
        "n5",
        "KEPT",
        None,
        generation=None,
        state="KEPT",
        usable=False,
        by_name=True,
        reason="a kept copy",
    )
    copies = [
        candidate("n4", "LEARNER", 42, committed=None, last=None),
        kept,
        candidate("n6", "LEARNER", None, usable=False, reason="its first copy is not finished"),
    ]
    told = reset(
        3,
        survivor="n4",
        orderly=None,
        candidates=copies,
        to_confirm=["n1", "n2"],
        unproven={"n4": "3.5.1"},
    )
    api.answers[RESET] = (200, {"partitions": [told]})
    assert main(["recovery", "reset", "orders", "--dry-run"]) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["3", "n4", "learner", "42", "0", "RUNNING", "best", "first"] in lines
    assert ["3", "n5", "kept", "?", "?", "KEPT", "--from", "n5", "a", "kept", "copy"] in lines
    assert [
        "3",
        "n6",
        "learner",
        "?",
        "0",
        "RUNNING",
        "no",
        "its",
        "first",
        "copy",
        "is",
        "not",
        "finished",
    ] in lines
    assert "a replica without a log" in printed.out
    assert printed.err.splitlines() == [
        "if n1, n2 are known to be dead: --confirm-dead n1,n2",
        "warning: n4 runs etcd 3.5.1: after a crash the revision of its replica proves nothing",
    ]
    assert main(["recovery", "reset", "orders", "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [told]


def test_terms_of_a_reset(api: ApiStub) -> None:
    """Names are separated by commas; what is not given is not sent."""
    api.answers[RESET] = (200, {"partitions": [reset(3)]})
    line = ["recovery", "reset", "orders", "-p", "3", "--dry-run"]
    assert main([*line, "--from", "n4", "--confirm-dead", "n1, n2,"]) == 0
    assert main([*line, "--empty", "--discard-copies", "n4,n5"]) == 0
    sent = {"partitions": [3], "empty": False, "dry_run": True}
    assert [each.body for each in api.requests] == [
        {**sent, "from": "n4", "confirm_dead": ["n1", "n2"]},
        {**sent, "empty": True, "discard_copies": ["n4", "n5"]},
    ]


def test_wait_until_writes_are_taken(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        state(3, "READ_ONLY"),
        state(3, "READ_ONLY", recovering="n1"),
        state(3, "AVAILABLE", recovering="n1"),
        state(3, "AVAILABLE"),
    ]

    def next_state(_: Request) -> tuple[int, dict[str, Any]]:
        return 200, {"partitions": [found.pop(0)]}

    api.answers[RESET] = (200, {"partitions": [reset(3)]})
    api.answers[f"{STATES}?partition=3"] = next_state
    assert main(["recovery", "reset", "orders", "-p", "3", "--wait"]) == 0
    assert found == []
    dry_run, carried_out = (each.body for each in api.requests[:2])
    assert dry_run == {"partitions": [3], "empty": False, "dry_run": True}
    accepted = {"partitions": [3], "survivor": "n1", "empty": False, "possibly_lost_entries": 2}
    assert carried_out == {"partitions": [3], "empty": False, "dry_run": False, "shown": [accepted]}
    assert capsys.readouterr().err.splitlines() == [
        "ORDERS: 0/1 accept writes; partition 3 is READ_ONLY",
        "ORDERS: 0/1 accept writes; partition 3 is READ_ONLY, founded on n1",
        "ORDERS: 0/1 accept writes; partition 3 is AVAILABLE, founded on n1",
        "ORDERS: 1/1 accept writes",
    ]
    api.answers[f"{STATES}?partition=3"] = (200, {"partitions": [state(3, "READ_ONLY")]})
    assert main(["recovery", "reset", "orders", "-p", "3", "--wait", "--timeout", "0"]) == 4


def test_refusals(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"name": "NOT_ENOUGH_ALIVE_NODES", "code": 5203, "detail": "no living node has a copy"}
    refused = reset(1, written=False, survivor=None, then=None, refusal=refusal)
    api.answers[RESET] = (200, {"partitions": [reset(0), refused]})
    assert main(["recovery", "reset", "orders"]) == 1
    assert capsys.readouterr().out.count("NOT_ENOUGH_ALIVE_NODES: no living node has a copy") == 1
    stale = {"name": "SHOWN_STATE_CHANGED", "code": 8109, "detail": "more would be lost"}
    answers = [[reset(0)], [reset(0, written=False, survivor=None, then=None, refusal=stale)]]
    api.answers[RESET] = lambda _: (200, {"partitions": answers.pop(0)})
    assert main(["recovery", "reset", "orders"]) == 1
    assert "SHOWN_STATE_CHANGED: more would be lost" in capsys.readouterr().out
    api.problem(RESET, 409, "RECOVERY_NOT_NEEDED", "2 of 3 voters are alive", sqlState="55000", code=5201)
    assert main(["recovery", "reset", "orders", "--empty"]) == 1
    assert "RECOVERY_NOT_NEEDED (5201, 55000): 2 of 3 voters are alive" in capsys.readouterr().err


def test_restart(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"partitions": [{"partition": 3, "nodes": ["n2"], "cleanup": True}]}
    api.answers[RESTART] = (200, body)
    busy = {**state(3, "AVAILABLE"), "restarting": ["n2"]}
    found = [busy, state(3, "AVAILABLE")]
    api.answers[f"{STATES}?partition=3"] = lambda _: (200, {"partitions": [found.pop(0)]})
    line = ["recovery", "restart", "orders", "-p", "3", "--node", "n2", "--cleanup", "--wait"]
    assert main(line) == 0
    assert found == []
    assert api.requests[0].body == {"partitions": [3], "nodes": ["n2"], "cleanup": True, "dry_run": False}
    assert capsys.readouterr().out.splitlines()[1].split() == ["3", "n2", "yes"]


RESET_LOST = "POST /api/v1/zones/ORDERS/recovery/reset-lost"


def test_lost_partitions_are_reset(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 while some partition has no owner."""
    owned = {"partition": 0, "outcome": "OWNED", "owners": ["n1", "n2"], "exchange": "7.2", "detail": ""}
    api.answers[RESET_LOST] = (200, {"zone": "ORDERS", "partitions": [owned]})
    assert main(["recovery", "reset-lost", "orders"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "partition  outcome  owners  detail",
        "0          OWNED    n1 n2",
    ]
    assert main(["recovery", "reset-lost", "orders", "--confirm-dead", "n1, n3"]) == 0
    assert [request.body for request in api.requests] == [{}, {"confirm_dead": ["n1", "n3"]}]
    capsys.readouterr()
    lost = {**owned, "partition": 3, "outcome": "LOST", "owners": [], "detail": "ask again"}
    api.answers[RESET_LOST] = (200, {"zone": "ORDERS", "partitions": [owned, lost]})
    assert main(["recovery", "reset-lost", "orders", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == [owned, lost]
