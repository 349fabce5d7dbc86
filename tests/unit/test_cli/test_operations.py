"""``zonectl operations``: what it says, sends and waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request

BASE = "/api/v1/operations"


def operation(state: str = "RUNNING", done: int = 3, **more: Any) -> dict[str, Any]:
    """Operation as the API gives it."""
    over = state not in ("WAITING", "RUNNING", "PAUSED")
    return {
        "operation_id": "3-1834",
        "kind": "ALTER_ZONE",
        "state": state,
        "over": over,
        "cause": "",
        "zone": "ORDERS",
        "zone_id": 3,
        "by": "alice",
        "verified": False,
        "reason": "growth",
        "statement": "ALTER ZONE orders SET (REPLICAS 3)",
        "catalog_version": 7,
        "reverses": None,
        "started": "2026-01-01T10:00:00Z",
        "ended": "2026-01-01T10:05:00Z" if over else None,
        "partitions_to_move": 8,
        "progress": {
            "partitions": {"total": 8, "done": done, "moving": 1, "waiting": 8 - done - 1 if done < 8 else 0},
            "bytes": {"estimated": 8_000, "copied": 1_000 * done},
            "bytes_per_s": 100 if state == "RUNNING" else None,
            "seconds_left": 50.0 if state == "RUNNING" else None,
        },
        "waiting": [{"cause": "NODE_DOWN: n3", "partitions": 4, "numbers": [1, 2]}] if not over else [],
        **more,
    }


PLAN = {
    "units": [{"donor": "n1", "stealer": "n2", "copies": 3, "bytes": 3_000}],
    "batch_size": 2,
    "batches": 4,
    "first_batches": [],
}


@pytest.mark.row("VOL-089")
def test_the_list(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-089: id, description, status and progress, a line each."""
    found = [operation(), operation("CANCELLED", over=False, verified=True, cause="cancelled by bob")]
    query = "page_size=5&zone=ORDERS&state=RUNNING&state=CANCELLED"
    api.answers[f"GET {BASE}?{query}"] = (200, {"operations": found, "next_page_token": None})
    line = "operations --zone orders --state running --state cancelled --count 5"
    assert main(line.split()) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["operation", "zone", "kind", "state", "done", "started", "by", "reason"]
    assert first.split() == [
        *("3-1834", "ORDERS", "ALTER_ZONE", "RUNNING", "3/8"),
        *("2026-01-01T10:00:00Z", "alice", "(unverified)", "growth"),
    ]
    assert "CANCELLED, ending" in second
    assert second.split()[-4:] == ["alice", "cancelled", "by", "bob"]
    assert main([*line.split(), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.row("VOL-087", "VOL-104")
def test_show(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-087, VOL-104: progress, what waits for what, and the plan."""
    api.answers[f"GET {BASE}/3-1834"] = (200, operation(plan=PLAN))
    assert main(["operations", "show", "3-1834"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3-1834 ALTER_ZONE of zone ORDERS: RUNNING"
    assert "requested by alice (unverified): growth" in lines
    assert "partitions: 3/8 done, 8 to move" in lines
    assert "bytes: 3000 copied, 8000 to copy (estimate), 100 bytes/s" in lines
    assert "about 50 s left" in lines
    assert "4           NODE_DOWN: n3  1, 2, ..." in lines
    assert "n1    n2  3       3000" in lines
    assert lines[-1] == "4 batches of at most 2 partitions"


def test_a_cause_that_begins_with_the_state(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """The state is said once."""
    api.answers[f"GET {BASE}/3-1834"] = (200, operation("PAUSED", cause="PAUSED: by alice: not now", plan=PLAN))
    assert main(["operations", "show", "3-1834"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[0] == "3-1834 ALTER_ZONE of zone ORDERS: PAUSED: by alice: not now"
    )


@pytest.mark.row("VOL-095")
@pytest.mark.parametrize(
    ("line", "action", "sent"),
    [
        ("pause 3-1834 --by bob --for 30m", "pause", {"by": "bob", "reason": "", "for_s": 1800}),
        ("resume 3-1834 --by bob", "resume", {"by": "bob", "reason": ""}),
        ("cancel 3-1834 --by bob --reason x", "cancel", {"by": "bob", "reason": "x"}),
    ],
)
def test_actions(
    line: str, action: str, sent: dict[str, Any], api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """VOL-095."""
    api.answers[f"POST {BASE}/3-1834/{action}"] = (200, operation("PAUSED", cause="PAUSED: by bob"))
    assert main(["operations", *line.split(), "--format", "json"]) == 0
    assert api.requests[-1].body == sent
    assert api.requests[-1].headers["Zonekeeper-Via"] == "cli"
    assert json.loads(capsys.readouterr().out)["state"] == "PAUSED"


@pytest.mark.row("VOL-093")
def test_reverse(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-093."""
    answer = {"reverses": "3-1834", "catalog_version": 9, "operation_id": "3-1900"}
    api.answers[f"POST {BASE}/3-1834/reverse"] = (202, answer)
    assert main(["operations", "reverse", "3-1834", "--by", "bob"]) == 0
    assert capsys.readouterr().out == "3-1834 is reversed by 3-1900: catalog version 9\n"


def test_a_refusal_is_told(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem(f"POST {BASE}/3-1834/reverse", 409, "REVERSE_IMPOSSIBLE", "copies were given up", code=5206)
    assert main(["operations", "reverse", "3-1834"]) == 1
    assert "copies were given up" in capsys.readouterr().err


class Life:
    """Answers of the server, one state after the other. ``waits``: how many requests had a time limit."""

    def __init__(self, api: ApiStub, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.waits = 0
        api.answer = self.answer

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        assert request.path.startswith(f"{BASE}/3-1834?plan=false")
        self.waits += "wait_timeout" in request.path
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


AWAY = 503, {"name": "METASTORE_UNAVAILABLE", "detail": "away", "status": 503}


@pytest.mark.row("VOL-020")
@pytest.mark.parametrize(("state", "code"), [("DONE", 0), ("CANCELLED", 1), ("SUPERSEDED", 1), ("FAILED", 1)])
def test_wait_ends_with_the_operation(
    state: str, code: int, api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """VOL-020: it shows progress, outlasts a server that is away, and tells how it ended."""
    life = Life(api, (200, operation(done=3)), AWAY, (200, operation(done=5)), (200, operation(state, 8)))
    assert main(["operations", "wait", "3-1834", "--format", "json"]) == code
    told = capsys.readouterr()
    assert json.loads(told.out)["state"] == state
    lines = told.err.splitlines()
    assert lines[0].startswith("3-1834 ALTER_ZONE ORDERS RUNNING: moving, 3/8 done, 1 moving, 4 waiting")
    assert lines[1].startswith("the server does not answer")
    assert lines[2] == "the server answers again"
    assert "5/8 done" in lines[3]
    assert life.waits >= 2, "it asks once, and then waits at the server"


def test_wait_gives_up(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    Life(api, (200, operation()))
    assert main(["operations", "wait", "3-1834", "--timeout", "0.1"]) == 4
    assert "not over after 0.1 s; the operation goes on" in capsys.readouterr().err


def test_there_is_no_such_operation(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    Life(api, (404, {"name": "OPERATION_NOT_FOUND", "detail": "there is no operation", "status": 404}))
    assert main(["operations", "wait", "3-1834"]) == 1
    assert "there is no operation" in capsys.readouterr().err


def test_one_object_is_no_csv(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operations", "show", "3-1834", "--format", "csv"]) == 64
    assert api.requests == []
    assert "csv" in capsys.readouterr().err


@pytest.mark.row("VOL-095")
def test_some_partitions_are_cancelled(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-095."""
    found = {"operation_id": "3-1834", "given_up": [3, 4], "going_back": [6], "begun": [5]}
    api.answers[f"POST {BASE}/3-1834/partitions/cancel"] = (200, found)
    line = ["operations", "cancel", "3-1834", "-p", "3", "-p", "4", "-p", "5", "--by", "bob"]
    assert main(line) == 0
    assert api.requests[-1].body == {"partitions": [3, 4, 5], "by": "bob", "reason": ""}
    assert capsys.readouterr().out.splitlines() == [
        "3-1834: 2 stay in place: 3, 4",
        "3-1834: 1 go back: 6",
        "3-1834: 1 complete their move: 5",
    ]
    assert main([*line, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.row("VOL-094")
def test_finalise(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-094: what is deleted is told in numbers; a refusal is one line."""
    path = f"POST {BASE}/3-1834/finalise"
    for copies, told in (
        (3, "3-1834: 3 kept replicas scheduled for deletion\n"),
        (0, "3-1834: no kept replicas\n"),
    ):
        api.answers[path] = lambda request, copies=copies: (
            202,
            {"operation_id": "3-1834", "dry_run": request.body.get("dry_run", False), "copies": copies},
        )
        assert main(["operations", "finalise", "3-1834", "--reason", "good"]) == 0
        assert capsys.readouterr().out == told
        # What was shown is what is sent.
        assert [each.body.get("copies") for each in api.requests[-2:]] == [None, copies]
    assert api.requests[-1].body["reason"] == "good"
    assert main(["operations", "finalise", "3-1834", "--format", "json"]) == 0
    answer = {"operation_id": "3-1834", "dry_run": False, "copies": 0}
    assert json.loads(capsys.readouterr().out) == answer
    sent = len(api.requests)
    assert main(["operations", "finalise", "3-1834", "--dry-run"]) == 0
    assert [each.body["dry_run"] for each in api.requests[sent:]] == [True]
    api.problem(path, 409, "OPERATION_STATE_ILLEGAL", "something of it is left", code=5205)
    assert main(["operations", "finalise", "3-1834"]) == 1
    assert "something of it is left" in capsys.readouterr().err


@pytest.mark.row("VOL-010", "VOL-099")
def test_limits_of_operations(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-010, VOL-099: one at a time, and how long one may take."""
    caps = ("cluster_moves", "zone_moves", "donor_moves", "receiver_moves", "batch_size", "pause")
    limits = {**dict.fromkeys(caps), "zone_pauses": [], "one_operation": True, "operation_s": 864_000}
    api.answers["PATCH /api/v1/rebalance/limits"] = (200, limits)
    assert main(["rebalance", "limits", "--one-operation", "--operation-time", "10d"]) == 0
    assert api.requests[-1].body == {"one_operation": True, "operation_s": 864_000}
    out = capsys.readouterr().out
    assert "one_operation" in out
    assert "864000" in out
