"""``zonectl log``: what it says, asks and sends."""

from __future__ import annotations

import json

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub

CHANGE = {
    "module": "rebalance.nodes",
    "level": "debug",
    "since": "2026-11-23T20:00:00Z",
    "until": "2026-11-23T20:30:00Z",
    "by": "alice",
    "reason": "slow",
}
LEVELS = {"defaults": {"app": "info", "uvicorn": "warning"}, "others": "warning", "changes": [CHANGE]}
PUT = "PUT /api/v1/log-levels/rebalance%2Enodes"


def test_levels(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /api/v1/log-levels"] = (200, LEVELS)
    assert main(["log", "levels"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["module", "level", "until", "by", "reason"]
    assert ["rebalance.nodes", "debug", "2026-11-23T20:30:00Z", "alice", "slow"] in rows
    assert [row for row in rows if row[0] in ("app", "uvicorn", "others")] == [
        *(["app", "info"], ["uvicorn", "warning"]),
        ["others", "warning"],
    ]
    assert main(["log", "levels", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == CHANGE


def test_level(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[PUT] = (200, CHANGE)
    line = ["log", "level", "rebalance.nodes", "debug", "--by", "alice", "--reason", "slow"]
    assert main([*line, "--for", "30m"]) == 0
    assert capsys.readouterr().out == "rebalance.nodes: debug until 2026-11-23T20:30:00Z\n"
    assert main(line) == 0
    bodies = [request.body for request in api.requests]
    assert [body["for_s"] for body in bodies] == [1_800, 3_600]
    assert bodies[0] == {"level": "debug", "for_s": 1_800, "by": "alice", "reason": "slow"}


@pytest.mark.parametrize("wrong", [["loud"], ["debug", "--for", "soon"], []])
def test_wrong_usage_asks_nobody(api: ApiStub, wrong: list[str]) -> None:
    assert main(["log", "level", "rebalance.nodes", *wrong]) == 64
    assert api.requests == []


def test_a_refusal_is_shown(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem("PUT /api/v1/log-levels/httpx", 400, "INVALID_REQUEST", "'httpx' is not a module with a level")
    assert main(["log", "level", "httpx", "info"]) == 1
    assert "'httpx' is not a module with a level" in capsys.readouterr().err


def test_a_failure_of_the_server_names_the_request(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem("GET /api/v1/log-levels", 500, "INTERNAL_ERROR", "see the log", request_id="ab12")
    assert main(["log", "levels"]) == 1
    assert "INTERNAL_ERROR: see the log; request id ab12" in capsys.readouterr().err


def test_reset(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    for changed, text in ((True, "default level"), (False, "default level, as before")):
        api.answers["DELETE /api/v1/log-levels/app"] = (200, {"module": "app", "changed": changed})
        assert main(["log", "reset", "app"]) == 0
        assert capsys.readouterr().out == f"app: {text}\n"
