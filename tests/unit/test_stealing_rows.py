"""Every requirement on Voldemort's rebalancing is shown by a test that names it."""

from __future__ import annotations

import pytest

from tests.fixtures.named_rows import named_in_tests

NAMED = named_in_tests("VOL")


@pytest.mark.parametrize("row", [f"VOL-{number:03d}" for number in range(1, 108)])
def test_each_row_is_named(row: str) -> None:
    assert row in NAMED
