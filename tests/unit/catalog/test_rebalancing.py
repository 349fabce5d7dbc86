"""Changes of a zone that may move data that is there."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from catalog.core.snapshot import PLACED, TIMERS, moves_data
from catalog.core.zone import (
    TIMER_OFF,
    ConsistencyMode,
    DistributionAlgorithm,
    Strategy,
    Zone,
    ZoneId,
)

ZONE = Zone(ZoneId(1), "Z", 4, 3, None, ("default",), auto_scale_up=60, auto_scale_down=TIMER_OFF)


@pytest.mark.row("VOL-097")
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ()),
        ({"replicas": 5}, ("replicas",)),
        ({"replicas": 5, "quorum_size": 3}, ("replicas", "quorum_size")),
        ({"nodes_filter": "$[?(@.region == 'EU')]"}, ("nodes_filter",)),
        ({"algorithm": DistributionAlgorithm.BALANCED}, ("algorithm",)),
        ({"name": "Y"}, ()),
        ({"strategy": Strategy.UPDATE}, ()),
        ({"consistency_mode": ConsistencyMode.HIGH_AVAILABILITY}, ()),
        ({"auto_scale_up": 0}, ("auto_scale_up",)),
        ({"auto_scale_up": TIMER_OFF}, ()),
        ({"auto_scale_down": 3_600}, ("auto_scale_down",)),
    ],
)
def test_what_moves_data(changed: dict[str, Any], found: tuple[str, ...]) -> None:
    """VOL-097: a timer that becomes shorter may apply what waits, a longer one moves nothing."""
    assert moves_data(ZONE, replace(ZONE, **changed)) == found


def test_every_parameter_is_judged() -> None:
    """One that a zone gets later must be put on one of the lists, or here."""
    fixed = {
        "zone_id",
        "name",
        "partitions",
        "storage_profiles",
        "consistency_mode",
        "strategy",
        "loss_policy",
        "life",
    }
    named = {each.name for each in fields(Zone)} - {"unknown"}
    assert named == {*PLACED, *TIMERS, *fixed}
