"""First lines of docstrings say by themselves what stands there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DONE = {
    "app": 2_000,
    "catalog": 400,
    "clients": 100,
    "migrations": 10,
    "monitoring": 12,
    "parser": 100,
    "rebalance": 2_500,
    "scripts": 20,
    "simulator": 400,
    "spark": 100,
    "tests/bench": 100,
    "tests/console": 110,
    "tests/contract": 200,
    "tests/datadriven": 30,
    "tests/e2e": 340,
    "tests/fixtures": 800,
    "tests/integration": 700,
    "tests/jdbc": 5,
    "tests/linearizability": 100,
    "tests/model": 120,
    "tests/property": 80,
    "tests/rows": 30,
    "tests/simulation": 400,
    "tests/unit": 1300,
}
"""Folders whose docstrings were rewritten, with the least number of them; others follow."""
REFUSED = re.compile(
    r"(What|Of|Whether|As|How|Where|Why|Which|Who|Whom|Whose|Whoever|Whatever|Nobody|Somebody|Nothing|Something|"
    r"Until|When|While|If|For|In|On|At|By|To|From|With|Without|Before|After|Behind|Under|Since|Because|Once|So|"
    r"Such|Those|These|They|It|Its|Also|Only|Not|Both)\b(?!-)"
)
"""First words of fragments."""


def first_lines(path: Path) -> Iterator[str]:
    """Yield the first line of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_text())):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield str(statement.value.value).strip().partition("\n")[0]


@pytest.mark.parametrize("folder", DONE)
def test_first_lines_stand_alone(folder: str) -> None:
    lines = [
        (path.relative_to(ROOT).as_posix(), line)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in first_lines(path)
    ]
    assert len(lines) >= DONE[folder]
    assert [f"{place}: {line}" for place, line in lines if REFUSED.match(line)] == []
