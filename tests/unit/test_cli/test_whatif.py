"""``zonectl whatif`` and ``zonectl skew`` in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main

NODES = [f"n{number}" for number in range(6)]


@pytest.fixture
def now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "nodes.json").write_text(json.dumps(NODES))
    given = ["place", "--nodes", tmp_path / "nodes.json", "--partitions", 60, "--replicas", 3,
             "--algorithm", "balanced", "--format", "json"]  # fmt: skip
    assert main(list(map(str, given))) == 0
    path = tmp_path / "now.json"
    path.write_text(capsys.readouterr().out)
    return path


def compared(
    now: Path, capsys: pytest.CaptureFixture[str], candidates: object, *more: str
) -> list[dict[str, Any]]:
    path = now.parent / "candidates.json"
    path.write_text(json.dumps(candidates))
    given = ["whatif", "--assignments", str(now), "--candidates", str(path), "--format", "json", *more]
    assert main(given) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["candidates"]
    return found


def test_candidates_are_put_in_order_with_reasons(now: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(
        now,
        capsys,
        [
            {"name": "two fewer", "remove": ["n0", "n1"]},
            {"name": "as it is"},
            {"name": "one copy", "replicas": 1},
            {"name": "one more", "add": ["n9"]},
            {"name": "named twice", "add": ["n5"]},
        ],
    )
    assert [each["name"] for each in found] == [
        *("as it is", "one more", "two fewer", "one copy", "named twice"),
    ]
    reasons = {each["name"]: each["reason"] for each in found}
    assert reasons["as it is"].startswith("best: 0 partitions that lose their majority with one failure domain")
    assert reasons["as it is"].endswith("0 replicas that move")
    assert reasons["two fewer"] == "60 replicas that move, the best has 0"
    assert reasons["one more"] == "25 replicas that move, the best has 0"
    assert reasons["one copy"] == "10 partitions that lose their majority with one node, the best has 0"
    assert reasons["named twice"] == "cannot be placed: nodes are named twice: 'n5'"


def test_failure_domains_are_weighed(now: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def racks(count: int) -> list[dict[str, str]]:
        return [{"name": name, "domain": f"r{at % count}"} for at, name in enumerate(NODES)]

    found = compared(now, capsys, [{"name": "two", "nodes": racks(2)}, {"name": "three", "nodes": racks(3)}])
    assert [each["name"] for each in found] == ["three", "two"]
    assert found[0]["assessment"]["lost_to_a_domain"] == 0
    # Of two racks one has two of three voters in each partition: half of them, if they are spread evenly.
    assert found[1]["assessment"]["lost_to_a_domain"] == 30


def test_the_table_names_the_best(now: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = now.parent / "c.json"
    path.write_text('[{"name": "one more", "add": ["n9"]}]')
    assert main(["whatif", "--assignments", str(now), "--candidates", str(path)]) == 0
    told = capsys.readouterr().out
    assert "CANDIDATE  NODES  MOVED  " in told
    assert "one more: best: 0 partitions that lose their majority" in told


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ("[]", "at least one candidate"),
        ('[{"add": []}]', 'candidate 1: expected an object with a "name"'),
        (
            '[{"name": "x", "ad": []}]',
            "'ad' is not known; there are add, consensus, name, nodes",
        ),
        ('[{"name": "x", "remove": ["n77"]}]', "(x): remove: 'n77' is not a node of the placement"),
        ('[{"name": "x", "replicas": 0}]', "(x): replicas 0: a number from 1 on, or ALL"),
        ('[{"name": "x", "consensus": "2"}]', "(x): consensus: a number from 0 on"),
        ('[{"name": "x", "add": [7]}]', "(x): add: node 1: expected a name or an object, found a number"),
    ],
)
def test_bad_candidates_are_said(
    now: Path, capsys: pytest.CaptureFixture[str], candidates: str, message: str
) -> None:
    path = now.parent / "c.json"
    path.write_text(candidates)
    assert main(["whatif", "--assignments", str(now), "--candidates", str(path)]) == 64
    assert message in capsys.readouterr().err


@pytest.mark.row("VOL-084")
def test_a_new_empty_node_gets_its_share(now: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-084: from the placement of before and one node more a balanced target is made, in which nothing moves
    but what the new node gets."""
    nodes = now.parent / "more.json"
    nodes.write_text(json.dumps([*NODES, "n6"]))
    given = ["place", "--nodes", nodes, "--partitions", 60, "--replicas", 3, "--algorithm", "balanced",
             "--previous", now, "--format", "json"]  # fmt: skip
    assert main(list(map(str, given))) == 0
    target = now.parent / "target.json"
    target.write_text(capsys.readouterr().out)
    assert main(["skew", "--assignments", str(target), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(node["replicas"] for node in found["nodes"].values()) == [25, 25, 26, 26, 26, 26, 26]
    assert found["spread"]["replicas"]["max_min"] == 1
    assert main(["transfers", "--before", str(now), "--after", str(target), "--format", "json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert {unit["stealer"] for unit in totals} == {"n6"}
    assert {unit["donor"] for unit in totals} == set(NODES)
    assert sum(unit["replicas"] for unit in totals) == found["nodes"]["n6"]["replicas"]


@pytest.mark.row("VOL-084")
def test_skew(now: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-084: partitions, replicas and generated keys of each node, with the standard deviation."""
    given = ["skew", "--assignments", str(now), "--keys", "6000"]
    assert main([*given, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["partitions"] == 60
    assert {node["replicas"] for node in found["nodes"].values()} == {30}
    assert sum(node["keys"] for node in found["nodes"].values()) == 18_000
    assert sum(node["primary_keys"] for node in found["nodes"].values()) == 6_000
    assert found["spread"]["replicas"] == {"max_min": 0, "stddev": 0.0}
    assert 0 < found["spread"]["keys"]["stddev"] < 300
    assert main(given) == 0
    assert "std. deviation  0         0       0" in capsys.readouterr().out
