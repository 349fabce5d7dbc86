"""``zonectl verify``: what it asks, what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub

ZONE = "/api/v1/zones/ORDERS"
COPY = {"node": "n1", "role": "VOTER", "lacking": [], "different": [], "error": ""}


def answer(*copies: dict[str, Any], digest: str | None = "d1", **told: int) -> dict[str, Any]:
    """``told``: of the partition, by builds that tell it."""
    agrees = not any(each["lacking"] or each["different"] or each["error"] for each in copies)
    keys = [{"key": "k", "digest": digest}]
    partition = {"partition": 0, "agrees": agrees, "keys": keys, "copies": copies, **told}
    return {"zone": "ORDERS", "zone_id": 1, "seed": 0, "agrees": agrees, "partitions": [partition]}


@pytest.mark.row("VOL-082", "VOL-083")
def test_saved_and_looked_for_later(api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-082, VOL-083: the file has the keys, which are asked for again; changed values are counted."""
    file = tmp_path / "orders.keys.json"
    api.answers[f"GET {ZONE}"] = (200, {"partitions": 1})
    api.answers[f"POST {ZONE}/verify"] = (200, answer(COPY))
    assert main(["verify", "orders", "--samples", "3", "--seed", "7", "--save", str(file)]) == 0
    assert api.requests[-1].body == {"partitions": [0], "samples": 3, "seed": 7}
    assert (
        capsys.readouterr().out == "orders: 1 keys in 1 partitions, 1 of 1 replicas read: all replicas agree\n"
    )
    api.answers[f"POST {ZONE}/verify"] = (200, answer(COPY, digest="d2"))
    assert main(["verify", "orders", "--keys", str(file)]) == 0
    assert api.requests[-1].body["saved"] == [{"partition": 0, "keys": ["k"]}]
    assert "1 values changed since --save: all replicas agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("copies", "wanted", "missing", "code", "verdict"),
    [
        (
            (COPY, {**COPY, "node": "n2"}),
            3,
            1,
            1,
            "2 of 3 replicas read: 1 replica is missing, those read agree",
        ),
        ((COPY,), 3, 2, 1, "1 of 3 replicas read: 2 replicas are missing, those read agree"),
        (
            (COPY, {**COPY, "node": "n2", "error": "no answer"}),
            3,
            1,
            1,
            "1 of 3 replicas read: 1 replica is missing, 1 replicas disagree",
        ),
        # The others are being made; the zone has just been altered to fewer.
        ((COPY,), 3, 0, 0, "1 of 3 replicas read: all replicas agree"),
        ((COPY, {**COPY, "node": "n2"}), 1, 0, 0, "2 of 2 replicas read: all replicas agree"),
    ],
)
def test_fewer_replicas_than_the_zone_asks_for(
    copies: tuple[dict[str, Any], ...],
    wanted: int,
    missing: int,
    code: int,
    verdict: str,
    api: ApiStub,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {"wanted": wanted, "missing": missing}
    api.answers[f"POST {ZONE}/verify"] = (200, answer(*copies, **told))
    assert main(["verify", "orders", "-p", "0"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == f"orders: 1 keys in 1 partitions, {verdict}"


def test_what_does_not_agree_is_named(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {**COPY, "node": "n2", "role": "LEARNER", "lacking": ["a"], "different": ["b", "c", "d"]}
    away = {**COPY, "node": "n3", "error": "no answer"}
    api.answers[f"POST {ZONE}/verify"] = (200, answer(COPY, bad, away))
    assert main(["verify", "orders", "-p", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[1].split()) == "0 n2 LEARNER 1 lacking, 3 different a, b, c and 1 more"
    assert " ".join(lines[2].split()) == "0 n3 VOTER not read: no answer"
    assert lines[3].endswith("2 replicas disagree")
    assert main(["verify", "orders", "-p", "0", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["agrees"], found["partitions"][0]["copies"][1]) == (False, bad)


@pytest.mark.parametrize("text", ["[]", "{", '{"v": 2}', '{"v": 1, "partitions": [{}]}'])
def test_a_file_of_another_kind(
    text: str, api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    assert main(["verify", "orders", "--keys", str(file)]) == 64
    assert "was not written by `zonectl verify --save`" in capsys.readouterr().err
    assert main(["verify", "orders", "--keys", str(tmp_path / "none")]) == 64
    assert "cannot read" in capsys.readouterr().err
    assert main(["verify", "orders", "--format", "csv"]) == 64
    assert api.requests == []
