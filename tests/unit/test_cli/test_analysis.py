"""``zonectl transfers``, ``skew`` and ``copies`` in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main


def written(path: Path, document: object) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def placement(*rows: str) -> dict[str, Any]:
    return {"assignments": [[{"node": name, "peer": True} for name in row] for row in rows]}


@pytest.fixture
def now(tmp_path: Path) -> str:
    return written(tmp_path / "now.json", placement("ab", "bc", "ca"))


@pytest.mark.row("VOL-085", "VOL-087")
def test_a_target_written_by_hand(now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-085, VOL-087: who gives what to whom, with bytes; nothing is changed. What each node would have."""
    target = written(tmp_path / "target.json", placement("ad", "bc", "dc"))
    sizes = written(tmp_path / "sizes.json", [100, 20, 3])
    given = ["transfers", "--before", now, "--after", target]
    assert main([*given, "--sizes", sizes]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told if line[:1] in "ab-"] == [
        ["a", "d", "1", "3"],
        ["b", "d", "1", "100"],
    ]
    assert told[-1] == "2 replicas are copied, 103 bytes; nothing was changed."
    assert main([*given, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"] == [
        {"donor": "a", "stealer": "d", "replicas": 1, "bytes": 0},
        {"donor": "b", "stealer": "d", "replicas": 1, "bytes": 0},
    ]
    assert [each["partition"] for each in found["partitions"]] == [0, 2]
    assert main(["skew", "--assignments", target, "--format", "json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert {name: node["replicas"] for name, node in nodes.items()} == {"a": 1, "b": 1, "c": 2, "d": 2}


@pytest.mark.row("VOL-084")
def test_more_and_fewer_copies(now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-084: from a target with a new empty node; a copy that is added has no donor, one that ends no
    stealer."""
    more = written(tmp_path / "more.json", placement("abd", "bcd", "cad"))
    assert main(["transfers", "--before", now, "--after", more, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"] == [
        {"donor": None, "stealer": "d", "replicas": 3, "bytes": 0}
    ]
    assert main(["transfers", "--before", more, "--after", now]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 replicas are copied; nothing was changed."


@pytest.mark.row("VOL-085")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (placement("ad", "bc"), "3 partitions before and 2 after"),
        (placement("ad", "bb", "dc"), "partition 1 names a node twice: b, b"),
        ({"assignments": [["a"]]}, 'a list of {"node", "peer"}'),
        (placement("ad", "b", "dc"), "as many replicas"),
        ({"assignments": []}, "there is nothing to compare"),
        ({"assignments": [[{"node": 7, "peer": True}]] * 3}, '"node" must be a string'),
        ({"assignments": [[{"node": "a", "peer": "no"}]] * 3}, '"peer" true or false'),
        ([["a", "b"]], 'expected "assignments"'),
    ],
)
def test_a_bad_target_is_refused(
    now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: object, message: str
) -> None:
    """VOL-085: it is validated."""
    path = written(tmp_path / "target.json", target)
    assert main(["transfers", "--before", now, "--after", path]) == 64
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([1, 2], "a JSON list of 3 numbers of bytes, found 2 numbers"),
        ({}, "a JSON list of 3 numbers of bytes, found an object"),
        ([1, -2, 3], "partition 1: expected a number of bytes from 0 on, found -2"),
        ([1, 2, True], "partition 2: expected a number of bytes"),
    ],
)
def test_bad_sizes_are_refused(
    now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: object, message: str
) -> None:
    path = written(tmp_path / "sizes.json", sizes)
    assert main(["skew", "--assignments", now, "--sizes", path]) == 64
    assert message in capsys.readouterr().err


@pytest.mark.row("VOL-086")
def test_the_key_generator_shows_a_good_and_a_bad_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VOL-086: the standard deviation is near 0 for a good target, and shows a bad one."""
    good = written(tmp_path / "good.json", placement(*["ab", "bc", "ca"] * 40))
    bad = written(tmp_path / "bad.json", placement(*["ab", "ab", "ca"] * 40))
    deviations = []
    for path in (good, bad):
        assert main(["skew", "--assignments", path, "--keys", "60000", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        deviations.append(found["spread"]["keys"]["stddev"] / (2 * 60000 / 3))
    assert deviations[0] < 0.02
    assert deviations[1] > 0.2
    assert main(["skew", "--assignments", good, "--keys", "10"]) == 0
    assert "std. deviation" in capsys.readouterr().out


def copy(name: str, counter: int, **more: object) -> dict[str, object]:
    plain = {"zone": 1, "partition": 0, "node": name, "state": "OWNING", "size": 4}
    return plain | {"update_counter": counter} | more


@pytest.mark.row("PME-088", "PME-089")
def test_copies_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PME-088, PME-089."""
    path = written(tmp_path / "map.json", [copy("a", 5), copy("b", 6), copy("c", 9, state="MOVING")])
    assert main(["copies", "--copies", path]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "warning: partition 1/0: update counters differ: a 5, b 6",
        "1 of 1 partitions have OWNING copies that differ.",
    ]
    path = written(tmp_path / "map.json", [copy("a", 5), copy("b", 5), copy("c", 9, state="MOVING")])
    assert main(["copies", "--copies", path, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"disagreements": []}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected a JSON list of copies, found an object"),
        ([{"zone": 1}], "copy 1: expected an object with exactly zone, partition, node"),
        ([copy("a", 5), copy("b", 6, state="OWNER")], "copy 2: state 'OWNER': there are MOVING, OWNING"),
        ([copy("a", 5, size="4")], "copy 1: size: expected a whole number, found '4'"),
        ([copy("a", 5, node=4)], "copy 1: node: expected a text, found 4"),
    ],
)
def test_bad_copies_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: object, message: str
) -> None:
    assert main(["copies", "--copies", written(tmp_path / "map.json", given)]) == 64
    assert message in capsys.readouterr().err
