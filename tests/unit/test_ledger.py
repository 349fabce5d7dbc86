"""The table of long runs in docs/soak.md."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.ledger import HEAD, PAGE, ROOT, WHOLE, Entry, with_entry


def entry(run: str, seconds: int) -> Entry:
    return Entry(run, "2026-01-02 03:04", "abc1234", "7 passed", seconds, "`test_x.py::test_y` 3 s")


def test_a_run_replaces_its_own_row_and_no_other() -> None:
    page = f"Before.\n\n{HEAD}\nAfter: | a | b |\n"
    for run, seconds in (("soak", 1), ("random", 2), ("soak", 3)):
        page = with_entry(page, entry(run, seconds))
    rows = (
        "| random | 2026-01-02 03:04 | abc1234 | 7 passed | 2 | `test_x.py::test_y` 3 s |\n"
        "| soak | 2026-01-02 03:04 | abc1234 | 7 passed | 3 | `test_x.py::test_y` 3 s |\n"
    )
    assert page == f"Before.\n\n{HEAD}{rows}\nAfter: | a | b |\n"


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table with this head"):
        with_entry("Nothing.\n", entry("soak", 1))


def test_the_page_has_the_table() -> None:
    assert "| servers |" in with_entry(PAGE.read_text(), entry("servers", 1))


def test_each_long_test_is_in_a_run() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "unit"]
    long = {path for path in files if "mark.soak" in path.read_text()}
    assert len(long) > 40
    runs = [ROOT / place for run in ("simulated", "servers", "installations") for place in WHOLE[run]]
    assert {path for path in long if sum(run in path.parents for run in runs) != 1} == set()


def test_make_soak_runs_what_the_page_calls_whole() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    runs = dict(re.findall(r"^SOAK_(\w+) := (?:-m soak )?(.*)$", makefile, re.MULTILINE))
    assert {run: tuple(places.split()) for run, places in runs.items()} == WHOLE
