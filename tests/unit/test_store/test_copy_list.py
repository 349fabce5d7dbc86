"""Lists of a store server's copies: columns there, rows here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.store.core.store_copy import Leading, ListedCopy, ServedCopy, list_copies, listed_copies

ZONE = ZoneId(7)
FIRST, LATER = StorePosition(6 << 32 | 1, 4), StorePosition(7 << 32, 9)


def test_rows_are_what_the_copies_are() -> None:
    """The rows are in order; of a copy that must be cleared nothing is complete."""
    copies = [
        ServedCopy((ZONE, 3), CopyState.MOVING, FIRST, is_clean=False, stream=LATER),
        ServedCopy((ZONE, 2), CopyState.OWNING, LATER, stream=LATER, leading=Leading(7, frozenset())),
        ServedCopy((ZoneId(4), 65_000), CopyState.RENTING, FIRST),
    ]
    assert list(listed_copies(list_copies(copies, 5))) == [
        ListedCopy(ZoneId(4), 65_000, "RENTING", False, FIRST, FIRST),
        ListedCopy(ZONE, 2, "OWNING", True, LATER, LATER),
        ListedCopy(ZONE, 3, "MOVING", False, LATER, NO_RECORD),
    ]
    assert list_copies((), 5).request == 5


def test_columns_that_do_not_fit_are_refused() -> None:
    answer = list_copies([ServedCopy((ZONE, 2), CopyState.OWNING, LATER)], 1)
    for broken in (
        replace(answer, codes=b""),
        replace(answer, zones=answer.zones + b"x"),
        replace(answer, positions=answer.positions[:8]),
    ):
        with pytest.raises(ValueError):
            list(listed_copies(broken))
