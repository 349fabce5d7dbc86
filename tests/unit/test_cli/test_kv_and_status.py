"""``zonectl kv`` and ``zonectl status`` against a real HTTP server."""

from __future__ import annotations

import io
import json
import sys

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub
from tests.unit.test_cli.pauses import PAUSE_LINES, PAUSED

KEY = "/api/v1/zones/ORDERS/kv/o-17"
STORED = {"zone": "ORDERS", "key": "o-17", "partition": 5, "revision": 9, "operation_id": "op-1"}
FOUND = {"zone": "ORDERS", "key": "o-17", "partition": 5, "value": "paid", "revision": 9}


def test_put_sends_the_operation_id(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"PUT {KEY}"] = (200, STORED)
    assert main(["kv", "put", "orders", "o-17", "paid", "--operation-id", "op-1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == STORED
    assert api.requests[0].body == {"value": "paid"}
    assert api.requests[0].headers["Idempotency-Key"] == "op-1"
    assert main(["kv", "put", "orders", "o-17", "paid"]) == 0
    assert main(["kv", "put", "orders", "o-17", "paid"]) == 0
    first, second = (request.headers["Idempotency-Key"] for request in api.requests[1:])
    assert first != second


def test_put_reads_stdin_as_it_is(api: ApiStub, monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers[f"PUT {KEY}"] = (200, STORED)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("zwei\nZeilen ü\n".encode())))
    assert main(["kv", "put", "orders", "o-17", "-"]) == 0
    assert api.requests[0].body == {"value": "zwei\nZeilen ü\n"}


def test_put_refuses_what_is_not_text(monkeypatch: pytest.MonkeyPatch, api: ApiStub) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert main(["kv", "put", "orders", "o-17", "-"]) == 64
    assert api.requests == []


def test_names_and_keys_are_escaped(api: ApiStub) -> None:
    api.answers["GET /api/v1/zones/%22a%20%2Fb%22/kv/%2E%2E%2Fc%3Fd"] = (200, {**FOUND, "value": "v"})
    assert main(["kv", "get", '"a /b"', "../c?d"]) == 0


def test_get_prints_the_value_alone(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {KEY}"] = (200, FOUND)
    assert main(["kv", "get", "orders", "o-17"]) == 0
    assert capsys.readouterr().out == "paid\n"
    assert main(["kv", "get", "orders", "o-17", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == FOUND
    assert main(["kv", "get", "orders", "o-17", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "ORDERS,o-17,5,paid,9"


@pytest.mark.row("IEP-058")
def test_get_from_a_learner_says_which_point_it_wants(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-058: at a revision or at a time; what does not go together is refused before anything is sent."""
    api.answers[f"GET {KEY}?read=learner"] = (200, FOUND)
    api.answers[f"GET {KEY}?read=replica&at_revision=12"] = (200, FOUND)
    api.answers[f"GET {KEY}?read=learner&at_time=2026-05-17T09%3A30%3A00%2B02%3A00"] = (200, FOUND)
    command = ["kv", "get", "orders", "o-17"]
    assert main([*command, "--read", "learner"]) == 0
    assert main([*command, "--read", "replica", "--at-revision", "12"]) == 0
    assert main([*command, "--read", "learner", "--at-time", "2026-05-17T09:30:00+02:00"]) == 0
    sent = len(api.requests)
    assert main([*command, "--at-revision", "12"]) == 64
    assert "--at-revision is for --read learner" in capsys.readouterr().err
    assert main([*command, "--read", "learner", "--at-revision", "1", "--at-time", "2026-05-17T09:30Z"]) == 64
    assert "not both" in capsys.readouterr().err
    assert main([*command, "--read", "follower"]) == 64
    assert len(api.requests) == sent


@pytest.mark.row("IEP-058")
def test_a_replica_that_is_behind_is_4(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-058: the wait has an end, and its message says where the replicas are."""
    api.problem(f"GET {KEY}?read=learner", 504, "REPLICA_BEHIND", "no learner has revision 9", sqlState="58000")
    assert main(["kv", "get", "orders", "o-17", "--read", "learner"]) == 4
    assert "REPLICA_BEHIND (58000): no learner has revision 9" in capsys.readouterr().err


def test_a_missing_key_is_1(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem(f"GET {KEY}", 404, "KEY_NOT_FOUND", "no key o-17 in ORDERS", code=5001, sqlState="02000")
    assert main(["kv", "get", "orders", "o-17"]) == 1
    assert capsys.readouterr().err == "KEY_NOT_FOUND (5001, 02000): no key o-17 in ORDERS\n"
    assert main(["kv", "get", "orders", "o-17", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().err)["name"] == "KEY_NOT_FOUND"


def test_an_unknown_outcome_is_4_and_names_the_operation(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    api.problem(f"PUT {KEY}", 504, "OUTCOME_UNKNOWN", "no majority answered in 15 s", sqlState="40003")
    assert main(["kv", "put", "orders", "o-17", "paid", "--operation-id", "op-1"]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "OUTCOME_UNKNOWN (40003): no majority answered in 15 s",
        "repeat it with --operation-id op-1",
    ]


def test_status(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    ready = {"ready": True, "catalog": "ok", "metastore": "ok", "spark": "starting", "spark_message": "JVM"}
    node = {"name": "n1", "alive": False, "attributes": {"region": "EU"}, "profiles": ["default"]}
    api.answers["GET /readyz"] = (200, ready)
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": [{**node, "member_limit": 100, "members": 8}]})
    api.answers["GET /api/v1/zones"] = (200, {"zones": [{"name": "ORDERS", "partitions": 8, "replicas": 3}]})
    api.answers["GET /api/v1/rebalance/limits"] = (200, PAUSED)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    stores = "catalog ok, metastore ok, controller none, spark starting (JVM)"
    assert lines[:2] == [f"{api.url}: ready", stores]
    assert lines[2:5] == ["limits of moves: cluster_moves 8", *PAUSE_LINES]
    assert "n1    NO     8/100    region=EU   default" in lines
    assert "ORDERS  partitions=8 replicas=3" in lines
    assert main(["status", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["members"] == 8
    holding = {**node, "member_limit": 100, "members": 8, "copies": 300}
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": [holding]})
    assert main(["status"]) == 0
    assert "n1    NO     8/100    300     region=EU   default" in capsys.readouterr().out.splitlines()


def test_status_says_what_learners_wait_for(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    ready = {"ready": True, "catalog": "ok", "metastore": "ok", "spark": "ready", "spark_message": ""}
    zone = {"zone_id": 4, "name": "WIDE", "partitions": 2, "voters": 3, "learners": 2, "catalog_version": 7}
    causes = [{"cause": "LEARNER_STARTING: n5", "partitions": 2}]
    api.answers["GET /readyz"] = (200, ready)
    api.answers["GET /api/v1/rebalance/limits"] = (200, PAUSED)
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": []})
    api.answers["GET /api/v1/zones"] = (200, {"zones": [zone]})
    api.answers["GET /api/v1/progress/4?version=7"] = (200, {"state": "MOVING", "causes": causes})
    assert main(["status"]) == 0
    row, explained = capsys.readouterr().out.splitlines()[-2:]
    said = "waits for a learner to receive its first data [LEARNER_STARTING: n5] (2)"
    assert row.split("  ") == ["WIDE", "partitions=2 voters=3 learners=2", said]
    assert explained == "Explained in docs/causes.md#learner_starting"
    assert main(["status", "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["zones"]
    assert shown["progress"]["causes"] == causes


def test_status_of_what_is_not_ready_is_1(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /readyz"] = (
        503,
        {"ready": False, "catalog": "ok", "metastore": "no answer", "spark": "down"},
    )
    assert main(["status"]) == 1
    assert "metastore no answer" in capsys.readouterr().out


@pytest.mark.parametrize(("http_status", "is_ready"), [(200, True), (503, False)])
def test_status_without_a_login_says_where_to_log_in(
    http_status: int, is_ready: bool, api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """/readyz answers everybody, and has no details for who has not logged in."""
    api.answers["GET /readyz"] = (http_status, {"ready": is_ready, "state": "ready"})
    api.problem("GET /api/v1/nodes", 401, "UNAUTHENTICATED", "log in", sqlState="28000")
    assert main(["status"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "UNAUTHENTICATED (28000): log in"


@pytest.mark.parametrize(("severity", "code"), [("page", 1), ("ticket", 0)])
def test_status_names_what_is_degraded(
    severity: str, code: int, api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"severity": severity, "since": "2026-01-01T00:00:00Z"}
    ready = {
        "state": "degraded",
        "ready": True,
        "degraded": [{"part": "controller", "cause": "NO_LEADER: no controller leads", **page}],
        "catalog": "ok",
        "metastore": "ok",
        "controller": None,
        "spark": "unknown",
        "background": {"processes": [{"process": "n2", "defects": 3, "last_defect": "round: KeyError: 'x'"}]},
    }
    api.answers["GET /readyz"] = (200, ready)
    api.answers["GET /api/v1/rebalance/limits"] = (200, PAUSED)
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": []})
    api.answers["GET /api/v1/zones"] = (200, {"zones": []})
    assert main(["status"]) == code
    assert capsys.readouterr().out.splitlines()[:4] == [
        f"{api.url}: degraded",
        "catalog ok, metastore ok, controller none, spark unknown",
        "controller: NO_LEADER: no controller leads (since 2026-01-01T00:00:00Z)",
        "defects in n2: 3, the last: round: KeyError: 'x'; see its log",
    ]


def test_status_of_limits_that_cannot_be_read_shows_the_rest(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = "RECORD_NOT_READABLE: zonekeeper/rebalance/limits: format 2 is not known; this build reads 1"
    api.answers["GET /readyz"] = (
        200,
        {
            "state": "degraded",
            "ready": True,
            "catalog": "ok",
            "metastore": "ok",
            "degraded": [{"part": "metastore", "cause": cause}],
        },
    )
    api.answers["GET /api/v1/rebalance/limits"] = (
        503,
        {"status": 503, "name": "RECORD_NOT_READABLE", "code": 7020},
    )
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": [{"name": "n1", "alive": True}]})
    api.answers["GET /api/v1/zones"] = (200, {"zones": []})
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert f"metastore: {cause}" in shown
    assert "n1" in shown


def test_status_of_a_silent_metastore_is_1_and_shows_the_rest(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statements are taken meanwhile."""
    api.answers["GET /readyz"] = (
        200,
        {"state": "degraded", "ready": True, "catalog": "ok", "metastore": "no answer within 1 s"},
    )
    api.answers["GET /api/v1/rebalance/limits"] = (200, PAUSED)
    api.answers["GET /api/v1/nodes"] = (200, {"nodes": [{"name": "n1", "alive": True}]})
    api.answers["GET /api/v1/zones"] = (200, {"zones": []})
    assert main(["status"]) == 1
    shown = capsys.readouterr().out
    assert "metastore no answer within 1 s" in shown
    assert "n1" in shown
