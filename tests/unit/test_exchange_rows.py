"""Every requirement on the partition map exchange is shown by a test that names it, or accounted for."""

from __future__ import annotations

import pytest
import yaml

from tests.fixtures.named_rows import TESTS, named_in_tests

ACCOUNTED = TESTS / "data" / "exchange_rows_accounted.yaml"
ROWS = tuple(f"PME-{number:03d}" for number in range(1, 141))


NAMED = named_in_tests("PME")


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_named(row: str) -> None:
    does_not_apply = yaml.safe_load(ACCOUNTED.read_text())["does_not_apply"]
    assert (row in NAMED) is not (row in does_not_apply), f"{row}: either a test names it, or a reason is given"


def test_reasons_are_given_for_known_rows() -> None:
    for row, reason in yaml.safe_load(ACCOUNTED.read_text())["does_not_apply"].items():
        assert row in ROWS
        assert len(reason.split()) > 5
