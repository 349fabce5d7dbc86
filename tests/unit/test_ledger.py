"""The table of long runs in docs/soak.md."""

from __future__ import annotations

import pytest

from tests.fixtures.ledger import HEAD, PAGE, Entry, with_entry


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
    assert "| soak |" in with_entry(PAGE.read_text(), entry("soak", 1))
