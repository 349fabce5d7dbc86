"""A joiner's node that never returns costs no acknowledged put, and its move ends."""

from __future__ import annotations

import pytest

from tests.simulation.joiner_cells import Cell, cells, outcome

ALL = tuple(cells())
SLICE = ALL[::9]
"""Each stage, strategy and way is in it."""


def check(cell: Cell) -> None:
    found = outcome(cell)
    assert found.lost == 0
    assert found.puts > 0, "the group goes on"
    assert not found.left, f"{cell}: {found}"


@pytest.mark.parametrize("cell", SLICE, ids=str)
def test_a_move_ends_without_its_joiner(cell: Cell) -> None:
    check(cell)


def test_the_slice_has_each_part() -> None:
    for name in ("stage", "strategy", "way", "scales_down"):
        assert {getattr(each, name) for each in SLICE} == {getattr(each, name) for each in ALL}


@pytest.mark.soak
@pytest.mark.parametrize("cell", ALL, ids=str)
def test_every_move_ends_without_its_joiner(cell: Cell) -> None:
    check(cell)
