"""References to requirements, decisions, rules and scenarios, wherever the repository makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.rows.sources import ROOT, expanded
from tests.rows.table import read_requirements

PLACES = (
    *("app", "parser", "catalog", "rebalance", "spark", "migrations", "simulator", "tests", "docs", "scripts"),
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
)
SUFFIXES = (".py", ".md", ".txt", ".yaml", ".jsonl", ".csv", ".sh")
NOT_ROWS = ("IEP-133",)
"""Names that look like a row and are none: the document itself."""

ROW = re.compile(r"\b(?:I3A?|IEP|PME|VOL)-\d{3}(?:\.\.\d{3})?\b")
DECISIONS = re.compile(r"\b[Dd]ecisions? (\d+(?:(?:, | and |-)\d+)*)")
RULE = re.compile(r"(?<![\w.-])(?:M1\d|[MHRS][1-9])(?![\w.]\w|\w)")
SCENARIO = re.compile(r"(?<![\w-])[SZ]\d{3}(?!\w)")


def known_ids() -> frozenset[str]:
    """Ids of ``docs/requirements.csv``, and of the cases of ``tests/data``."""
    cases = [
        json.loads(line)["id"]
        for name in ("rebalance_scenarios", "zone_statements")
        for line in (ROOT / "tests" / "data" / f"{name}.jsonl").read_text().splitlines()
    ]
    return frozenset([*read_requirements(), *cases, *NOT_ROWS])


def cited_in(text: str) -> Iterator[str]:
    """The ids that ``text`` cites, ranges taken apart."""
    for match in ROW.finditer(text):
        yield from expanded(match[0])
    for match in DECISIONS.finditer(text):
        for part in re.split(", | and ", match[1]):
            first, _, last = part.partition("-")
            yield from (f"decision {number}" for number in range(int(first), int(last or first) + 1))
    for pattern in (RULE, SCENARIO):
        yield from (match[0] for match in pattern.finditer(text))


def files() -> Iterator[Path]:
    for place in (ROOT / name for name in PLACES):
        paths = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (path for path in paths if path.suffix in SUFFIXES and path.is_file())


def unresolved() -> Iterator[str]:
    """``file:line: id`` of each citation that nothing in the repository explains."""
    known = known_ids()
    for path in files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for cited in cited_in(line):
                if cited not in known:
                    yield f"{path.relative_to(ROOT)}:{number}: {cited}"
