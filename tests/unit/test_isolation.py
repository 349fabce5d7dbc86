"""Time for which a node serves unheard, and a controller's wait for its end."""

from __future__ import annotations

import pytest

from rebalance.core.topology.fencing import WAIT_MS, fence_ms_of, reset_after_ms, reset_s_min


@pytest.mark.parametrize("lease_s", [2, 5, 30])
@pytest.mark.parametrize("reset_s", [1, 6, 9, 10, 60])
def test_a_controller_waits_until_the_node_is_silent(reset_s: int, lease_s: int) -> None:
    """The wait is longer than the fence whatever the limits say; where they are large enough it is exactly what
    they say."""
    fence_ms = fence_ms_of(reset_s, lease_s)
    assert fence_ms >= 1_000 * lease_s
    waited_ms = reset_after_ms(reset_s, fence_ms)
    assert waited_ms >= fence_ms + WAIT_MS
    if reset_s >= reset_s_min(lease_s):
        assert waited_ms == 1_000 * reset_s


def test_a_decrease_waits_for_nodes_that_have_not_followed() -> None:
    before = fence_ms_of(60, 5)
    assert reset_after_ms(10, before) == 60_000
    assert reset_after_ms(10, fence_ms_of(10, 5)) == 10_000
