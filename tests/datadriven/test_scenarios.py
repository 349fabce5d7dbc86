"""Known scenarios of the guarded writes (``tests/data/rebalance_scenarios.jsonl``), each with its id."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.datadriven.runner import SCRIPTS, Block, read_blocks, run_script
from tests.fixtures.guarded_write_script import execute

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
AREAS = (
    *("assign-invoke", "stable-switch", "queue", "trap", "quorum", "failover"),
    *("ha", "dr", "lease", "agent", "e2e", "obs"),
)
SCENARIOS = {
    case["id"]: case
    for line in (DATA / "rebalance_scenarios.jsonl").read_text().splitlines()
    if (case := json.loads(line))["area"] in AREAS
}
ACCOUNTED: dict[str, dict[str, str]] = yaml.safe_load((DATA / "rebalance_scenarios_accounted.yaml").read_text())
MATRIX = {
    name: case
    for name, case in SCENARIOS.items()
    if case["name"].startswith("matrix row") and name not in ACCOUNTED["does_not_apply"]
}


def nodes_of_row(text: str) -> str:
    return text if text == "-" else text.lower()


@pytest.mark.row("I3-020", "I3-021", "I3-022", "I3-023", "I3-024")
@pytest.mark.parametrize("name", MATRIX)
def test_matrix(name: str) -> None:
    """I3-020..024: S003, S004, S005, S007..S014, S017, S018. What a handler knew of stable does not count,
    what is stored does."""
    case: dict[str, Any] = MATRIX[name]
    given = dict(
        re.findall(
            r"(?:etcd )?\b(stable|pending|planned|trigger)=(\S+?)(?:,|$)", case["given"].split(", ", 1)[1]
        )
    )
    target = re.search(r"calc=(\w+)", case["when"])
    expected = dict(re.findall(r"\b(stable|pending|planned)=(\S+?),", case["expect"]))
    assert target is not None
    assert len(given) == 4
    assert len(expected) == 3
    arguments = {field: nodes_of_row(text) for field, text in given.items()}
    block = Block(0, "", "trigger", {**arguments, "target": target[1].lower(), "event": "2"}, "", "")
    outcome, after = asyncio.run(execute(block)).split("\n")
    assert outcome == case["expect"].rsplit(" ", 1)[1]
    found = dict(word.split("=") for word in after.split())
    assert {field: found[field] for field in expected} == {k: nodes_of_row(v) for k, v in expected.items()}
    assert found["trigger"] == "2"


@pytest.mark.row("I3-016..025", "I3-036", "I3-037")
def test_script() -> None:
    """I3-016..025, I3-036, I3-037: S019..S022, S024, S044, S050, S054, S055, S059..S061, S063..S065, S236,
    S237, S242: each block names its scenario."""
    run_script("scenarios.txt", lambda block: asyncio.run(execute(block)))


def test_each_scenario_is_accounted_for() -> None:
    """Account for each scenario by a row of the matrix, a block of the script, another test, or the reason why
    it does not apply."""
    shown = {block.arguments["scenario"] for block in read_blocks(SCRIPTS / "scenarios.txt")}
    ways = [set(MATRIX), shown, set(ACCOUNTED["shown_elsewhere"]), set(ACCOUNTED["does_not_apply"])]
    assert set().union(*ways) == set(SCENARIOS)
    assert sum(map(len, ways)) == len(SCENARIOS), "a scenario is accounted for twice"
    for name, place in ACCOUNTED["shown_elsewhere"].items():
        path, function = place.split("::")
        text = (ROOT / path).read_text()
        assert f"def {function}(" in text, f"{name}: {place} is no test"
        docstring = text.split(f"def {function}(")[1].split('"""')[1]
        assert re.search(rf"\b{name}\b", docstring), f"{name}: {place} does not name it"
