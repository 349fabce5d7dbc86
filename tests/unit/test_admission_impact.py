"""Share of a cluster that moves at once under each limit, and the time that all of it takes."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits, Loads, Move, Rooms, TokenBuckets, admit

ZONE = ZoneId(1)
MOVES = {number: Move((f"d{number % 2}",), (f"r{number % 3}",)) for number in range(24)}
SIZE, MOVE_MS, STEP_MS = 1_000, 1_000, 500


def impact(limits: Limits) -> tuple[int, int]:
    """The most moves at once, and milliseconds until the last one has ended, each of which takes a second."""
    waiting, ends = dict(MOVES), dict[int, int]()
    buckets, peak, now_ms = TokenBuckets(), 0, 0
    while waiting or ends:
        ends = {number: end_ms for number, end_ms in ends.items() if end_ms > now_ms}
        loads = Loads()
        for number in ends:
            loads.add(ZONE, MOVES[number])
        buckets = buckets.at(now_ms, limits.rates)
        rooms = Rooms(limits, loads, {}, now_ms, None, buckets, lambda _zone, _number: SIZE)
        for number in admit({ZONE: waiting.items()}, rooms).get(ZONE, ()):
            move = waiting.pop(number)
            buckets.take(move.donors, move.receivers, SIZE)
            ends[number] = now_ms + MOVE_MS
        peak = max(peak, len(ends))
        now_ms += STEP_MS
        assert now_ms < 1_000_000
    return peak, now_ms - STEP_MS


@pytest.mark.row("VOL-008")
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), (24, 1_000)),
        (Limits(cluster_moves=6), (6, 4_000)),
        (Limits(zone_moves=3), (3, 8_000)),
        (Limits(donor_moves=2), (4, 6_000)),
        (Limits(receiver_moves=1), (3, 8_000)),
        (Limits(batch_size=12), (12, 2_000)),
        (Limits(batch_size=4), (4, 6_000)),
        # So many bytes a second, whose moves overlap.
        (Limits(cluster_bytes_s=4 * SIZE), (6, 6_000)),
        (Limits(cluster_bytes_s=2 * SIZE), (3, 12_000)),
        (Limits(node_bytes_s=2 * SIZE), (6, 6_000)),
    ],
)
def test_each_limit_changes_what_is_measured(limits: Limits, expected: tuple[int, int]) -> None:
    """VOL-008: parallelism, batches and rates: fewer moves at once, and more time for all of them."""
    assert impact(limits) == expected
