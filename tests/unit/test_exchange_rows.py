"""Every requirement on the partition map exchange is shown by a test that names it, or accounted for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[1]
ACCOUNTED = TESTS / "data" / "exchange_rows_accounted.yaml"
ROWS = tuple(f"PME-{number:03d}" for number in range(1, 141))


def named_in_tests(prefix: str) -> set[str]:
    """Rows named in a docstring of a test; ``PME-001..003`` names all three."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        if path.name.endswith("_rows.py"):
            continue
        for docstring in re.findall(r'"""(.*?)"""', path.read_text(), re.DOTALL):
            for first, last in re.findall(rf"{prefix}-(\d{{3}})(?:\.\.(\d{{3}}))?", docstring):
                found |= {f"{prefix}-{number:03d}" for number in range(int(first), int(last or first) + 1)}
    return found


NAMED = named_in_tests("PME")


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_named(row: str) -> None:
    does_not_apply = yaml.safe_load(ACCOUNTED.read_text())["does_not_apply"]
    assert (row in NAMED) is not (row in does_not_apply), f"{row}: either a test names it, or a reason is given"


def test_reasons_are_given_for_known_rows() -> None:
    for row, reason in yaml.safe_load(ACCOUNTED.read_text())["does_not_apply"].items():
        assert row in ROWS
        assert len(reason.split()) > 5
