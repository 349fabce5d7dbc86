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


@pytest.mark.row("PME-077", "IEP-034", "IEP-035", "IEP-037", "IEP-038")
def test_every_golden_vector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-034, IEP-035, IEP-037, IEP-038, PME-077: nodes, roles and order of the Java implementation."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        path = nodes_file(tmp_path, case["nodes"])
        if not case["nodes"]:
            # The kernel answers with nothing; a command that was given nothing says so.
            assert main(["place", "--nodes", str(path), "--partitions", "1", "--replicas", "3"]) == 64
            continue
        found = placed(
            capsys, "--nodes", path, "--partitions", case["partitions"], "--replicas", case["replicas"],
            "--consensus", case["consensus"],
        )  # fmt: skip
        assert found == case["assignments"]


@pytest.mark.row("IEP-036")
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
        ("[" * 100_000, (), "nodes.json: JSON that cannot be read: maximum recursion depth exceeded"),
        ("9" * 4_301, (), "nodes.json: JSON that cannot be read: Exceeds the limit"),
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


def test_no_node_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = nodes_file(tmp_path, [])
    for form in ("table", "json"):
        command = ["place", "--nodes", str(path), "--partitions", "4", "--replicas", "3", "--format", form]
        assert main(command) == 64
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err == f"{path}: there is no node to place replicas on: name at least one\n"


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (("--replicas", "2"), []),
        (("--replicas", "ALL"), []),
        (("--replicas", "ALL", "--consensus", "2"), []),
        (("--replicas", "3"), ["3 replicas on 2 nodes: a partition gets 2"]),
        (("--replicas", "2", "--consensus", "3"), ["3 voters of 2 replicas: all of them vote"]),
        (
            ("--replicas", "5", "--consensus", "3"),
            ["5 replicas on 2 nodes: a partition gets 2", "3 voters of 2 replicas: all of them vote"],
        ),
    ],
)
@pytest.mark.parametrize("algorithm", ["rendezvous", "balanced"])
def test_more_than_there_are_nodes_is_warned_of(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    warnings: list[str],
    algorithm: str,
) -> None:
    """Warnings go to stderr: a program can read the answer itself as before."""
    path = nodes_file(tmp_path, ["a", "b"])
    command = ["place", "--nodes", str(path), "--partitions", "2", "--algorithm", algorithm, *options]
    assert main([*command, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert all(len(row) == 2 for row in json.loads(printed.out)["assignments"])
    assert printed.err.splitlines() == [f"zonectl: warning: {each}" for each in warnings]


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_commands_that_compare_refuse_what_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[list[str]]
) -> None:
    path, candidates = tmp_path / "placed.json", tmp_path / "candidates.json"
    path.write_text(json.dumps({"assignments": rows}))
    candidates.write_text('[{"name": "more", "add": ["b"]}]')
    for command in (
        ["skew", "--assignments", str(path)],
        ["transfers", "--before", str(path), "--after", str(path)],
        ["whatif", "--assignments", str(path), "--candidates", str(candidates)],
    ):
        assert main(command) == 64
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err == f'{path}: "assignments" has no replica: there is nothing to compare\n'


def test_no_copy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "copies.json"
    path.write_text("[]")
    assert main(["copies", "--copies", str(path)]) == 64
    assert capsys.readouterr().err == f"{path}: there is no copy to compare\n"


@pytest.mark.parametrize(
    ("candidate", "code", "told"),
    [
        ({"remove": ["a", "b"]}, 64, "no node is left"),
        ({"nodes": []}, 64, "no node is left"),
        ({"replicas": 3}, 0, "3 replicas on 2 nodes: a partition gets 2"),
        ({"add": ["c"], "replicas": 3, "consensus": 5}, 0, "5 voters of 3 replicas: all of them vote"),
    ],
)
def test_candidates_are_refused_and_warned_of_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], candidate: dict[str, Any], code: int, told: str
) -> None:
    path, candidates = tmp_path / "placed.json", tmp_path / "candidates.json"
    row = [{"node": "a", "peer": True}, {"node": "b", "peer": True}]
    path.write_text(json.dumps({"assignments": [row, row[::-1]]}))
    candidates.write_text(json.dumps([{"name": "other", **candidate}]))
    assert main(["whatif", "--assignments", str(path), "--candidates", str(candidates)]) == code
    warning = "zonectl: warning: " if code == 0 else ""
    assert capsys.readouterr().err == f"{warning}{candidates}: candidate 1 (other): {told}\n"
