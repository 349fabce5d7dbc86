"""``zonectl upgrade`` and ``zonectl --version``: what they say, ask and send."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.cli.main import main
from app.diagnosis import checks
from app.diagnosis.checks import CheckVerdict
from app.process.build import own_commit, own_version
from tests.fixtures.api_stub import ApiStub

NEW = {"name": "h/1", "role": "server", "version": "0.3.0", "commit": "0a1b2c3d4e5f6a7b", "level": 1}
OLD = {"name": "n1", "role": "node", "version": "0.2.0", "commit": "", "level": 0}
STEP = {"process": "n1", "role": "node", "version": "0.2.0", "may_go": True, "why_not": ""}
LATER = {"process": "n2", "role": "node", "version": "", "may_go": False, "why_not": "after n1"}
HINDRANCE = "node n1 (0.2.0, release level 0) cannot read what is written at level 1"
MIXED: dict[str, Any] = {
    "state": "MIXED",
    "version": "0.3.0",
    "level_in_force": 0,
    "level": 1,
    "processes": [NEW, OLD],
    "steps": [STEP, LATER],
    "hindrances": [HINDRANCE],
    "inactive": ["older builds are refused by name"],
    "refused": [],
    "strays": ["zone STOCK on node n1: 24"],
}
READY = {**MIXED, "state": "READY", "processes": [NEW], "steps": [], "hindrances": []}
FINALISED = {**READY, "state": "FINALISED", "level_in_force": 1, "inactive": []}
REFUSED = {
    **FINALISED,
    "processes": [NEW, OLD],
    "steps": [STEP],
    "refused": ["node n1 (0.2.0, release level 0)"],
    "strays": [],
}
STATE, FINALISE = "GET /api/v1/upgrade", "POST /api/v1/upgrade/finalise"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"zonectl {own_version()} ({own_commit()[:12] or 'commit not known'})\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", own_version())


def test_a_checkout_and_an_archive_are_known_by_their_commit() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", own_commit())


def test_status(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATE] = (200, MIXED)
    assert main(["upgrade", "status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "MIXED: release level 0 is in force, the server is of level 1",
        "server h/1: 0.3.0 (0a1b2c3d4e5f), release level 1",
        "node n1: 0.2.0, release level 0",
        f"not finalised: {HINDRANCE}",
        "members of groups in a store zone: zone STOCK on node n1: 24",
        "not before level 1: older builds are refused by name",
    ]
    assert main(["upgrade", "status", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == MIXED


def test_a_process_that_may_not_run_is_an_exit_code(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATE] = (200, REFUSED)
    assert main(["upgrade", "status"]) == 1
    assert "may not run: node n1 (0.2.0, release level 0)" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            MIXED,
            [
                "next: node n1 (0.2.0)",
                "then: node n2 (version not known), after n1",
                "then: `zonectl upgrade finalise` (level 1)",
            ],
        ),
        (READY, ["every process runs 0.3.0", "next: `zonectl upgrade finalise` (level 1)"]),
        (
            FINALISED,
            ["every process runs 0.3.0", "release level 1 is in force: there is nothing to finalise"],
        ),
    ],
)
def test_plan(api: ApiStub, capsys: pytest.CaptureFixture[str], body: dict[str, Any], lines: list[str]) -> None:
    api.answers[STATE] = (200, body)
    assert main(["upgrade", "plan"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_nothing_is_finalised_unasked(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATE] = (200, READY)
    assert main(["upgrade", "finalise"]) == 64
    shown = capsys.readouterr().err
    assert "--yes" in shown
    assert "level 0 is in force, 0.3.0 is of 1" in shown
    assert [request.method for request in api.requests] == ["GET"]


def test_finalise(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATE] = (200, READY)
    api.answers[FINALISE] = (200, {"finalised": True, "level_in_force": 1})
    assert main(["upgrade", "finalise", "--yes"]) == 0
    assert capsys.readouterr().out == "release level 1 is in force now\n"
    api.answers[STATE] = (200, FINALISED)
    api.answers[FINALISE] = (200, {"finalised": False, "level_in_force": 1})
    assert main(["upgrade", "finalise"]) == 0
    assert capsys.readouterr().out == "release level 1 was in force: nothing was done\n"


def test_a_refusal_names_who_is_in_the_way(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATE] = (200, MIXED)
    api.problem(FINALISE, 409, "UPGRADE_NOT_READY", f"level 1 is not finalised: {HINDRANCE}", sqlState="55006")
    assert main(["upgrade", "finalise", "--yes"]) == 1
    assert HINDRANCE in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "verdict", "value"),
    [
        (FINALISED, CheckVerdict.OK, "1 of 0.3.0, release level 1 in force"),
        (READY, CheckVerdict.WARN, "release level 0 in force, 0.3.0 is not finalised"),
        (MIXED, CheckVerdict.WARN, "earlier than 0.3.0: n1 0.2.0, n2 of no known version"),
        (REFUSED, CheckVerdict.FAIL, "below the release level 1 in force: node n1 (0.2.0"),
    ],
)
def test_the_doctor_tells_versions(body: dict[str, Any], verdict: CheckVerdict, value: str) -> None:
    check = checks.builds(body)
    assert check.verdict is verdict
    assert value in check.value
    assert ("zonectl upgrade" in check.action) == (verdict is not CheckVerdict.OK)
