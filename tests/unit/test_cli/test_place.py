"""``zonectl place`` in this process: golden vectors, balanced with a previous placement, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.data.placement_golden import FILE


def placed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[list[dict[str, Any]]]:
    assert main(["place", *map(str, arguments), "--format", "json"]) == 0
    found: list[list[dict[str, Any]]] = json.loads(capsys.readouterr().out)["assignments"]
    return found


def nodes_file(directory: Path, nodes: object) -> Path:
    path = directory / "nodes.json"
    path.write_text(json.dumps(nodes))
    return path


def test_every_golden_vector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-034, IEP-035, IEP-037, IEP-038, PME-077: nodes, roles and order of the Java implementation."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        path = nodes_file(tmp_path, case["nodes"])
        found = placed(
            capsys, "--nodes", path, "--partitions", case["partitions"], "--replicas", case["replicas"],
            "--consensus", case["consensus"],
        )  # fmt: skip
        assert found == case["assignments"]


def test_balanced_moves_the_least_from_what_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-036."""
    common = ("--partitions", 64, "--replicas", 3, "--algorithm", "balanced")
    path = nodes_file(tmp_path, [f"n{number}" for number in range(8)])
    before = placed(capsys, "--nodes", path, *common)
    held = Counter(cell["node"] for row in before for cell in row)
    assert set(held.values()) == {24}
    (tmp_path / "before.json").write_text(json.dumps({"assignments": before}))
    assert placed(capsys, "--nodes", path, *common, "--previous", tmp_path / "before.json") == before
    path = nodes_file(tmp_path, [f"n{number}" for number in range(7)])
    after = placed(capsys, "--nodes", path, *common, "--previous", tmp_path / "before.json")
    moved = sum(
        cell["node"] not in [old["node"] for old in was]
        for was, now in zip(before, after, strict=True)
        for cell in now
    )
    assert moved == 24
    assert (
        main(["place", "--nodes", str(path), *map(str, common), "--previous", str(tmp_path / "before.json")])
        == 0
    )
    table = capsys.readouterr().out
    assert "24 of 192 replicas move.\n" in table
    assert "max - min  1         1       1" in table


def test_weights_and_failure_domains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [{"name": f"n{at}", "domain": f"rack-{at % 3}", "weight": 1 + (at == 0)} for at in range(9)]
    rack = {node["name"]: node["domain"] for node in nodes}
    path = nodes_file(tmp_path, nodes)
    found = placed(capsys, "--nodes", path, "--partitions", 100, "--replicas", 3, "--algorithm", "balanced")
    assert all(len({rack[cell["node"]] for cell in row}) == 3 for row in found)
    held = Counter(cell["node"] for row in found for cell in row)
    assert held["n0"] == 50
    assert {held[name] for name in ("n3", "n6")} == {25}


@pytest.mark.parametrize(
    ("nodes", "arguments", "message"),
    [
        ("{", (), "nodes.json:1:2: not JSON"),
        ('{"name": "a"}', (), "expected a JSON list of node names or objects, found an object"),
        ('["a", 3]', (), "node 2: expected a name or an object, found a number"),
        ('[{"name": 3}]', (), '"name" must be a string, found a number'),
        ('[{"name": "a", "weight": 0}]', (), '"weight" must be a positive number, found 0'),
        ('[{"name": "a", "domain": "x"}, "b"]', (), "either every node has a domain or none"),
        ('["a"]', ("--replicas", "0"), "--replicas 0: a number from 1 on, or ALL"),
        ('["a"]', ("--previous", "x.json"), "--previous is for --algorithm balanced"),
        ('["a"]', ("--algorithm", "balanced", "--previous", "nowhere.json"), "cannot read nowhere.json"),
    ],
)
def test_bad_input_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nodes: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(nodes)
    given = ["place", "--nodes", str(path), "--partitions", "4", "--replicas", "2", *arguments]
    assert main(given) == 64
    assert message in capsys.readouterr().err


def test_nodes_that_are_named_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm in ("rendezvous", "balanced"):
        path = nodes_file(tmp_path, ["a", "a"])
        assert main(["place", "--nodes", str(path), "--partitions", "4", "--replicas", "2",
                     "--algorithm", algorithm]) == 1  # fmt: skip
        assert "cannot be placed: nodes are named twice: 'a'" in capsys.readouterr().err
