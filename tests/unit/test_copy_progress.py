"""Progress of an arriving copy, as its node publishes it."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.nodes.copy_attempts import CopyProgress, pause_s

P0, P1 = PartitionId(ZoneId(1), 0), PartitionId(ZoneId(1), 1)


@pytest.mark.row("M3")
def test_a_figure_is_published_seldom_and_kept_until_then() -> None:
    """M3: each member for itself; one that catches up no more says nothing, and begins anew."""
    progress = CopyProgress(lambda: 60)
    looks = ((7, 0.0), (8, 4.9), (9, 5.0), (9, 50.0))
    assert [progress.of(P0, received, at_s) for received, at_s in looks] == [7, 7, 9, 9]
    assert progress.of(P1, 3, 5.1) == 3
    assert progress.of(P0, 0, 51.0) == 0
    assert progress.of(P0, 4, 51.1) == 4


def test_who_judges_sees_several_figures_before() -> None:
    assert [pause_s(joiner_s) for joiner_s in (3, 60, 3_600)] == [1, 5, 5]
