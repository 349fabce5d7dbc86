"""Time until which a server serves."""

from __future__ import annotations

from rebalance.store.core.shared_state import ServerLife
from rebalance.store.core.store_limits import StoreLimits

LIMITS = StoreLimits(ttl_ms=5_000, margin_ms=1_000)


def beat(life: ServerLife, now_ms: int) -> int:
    ticket = life.due(now_ms)
    assert ticket is not None
    return ticket


def test_a_heartbeat_counts_from_when_it_was_sent() -> None:
    life = ServerLife(LIMITS)
    assert not life.serves(10_000)
    assert not life.is_over(10_000)
    ticket = beat(life, 10_000)
    # However long the answer took.
    life.committed(ticket)
    assert life.until_ms == 14_000
    assert life.serves(13_999)
    assert not life.serves(14_000)
    assert life.is_over(14_000)


def test_heartbeats_are_sent_three_times_a_ttl() -> None:
    life = ServerLife(LIMITS)
    sent = [now for now in range(0, 10_000, 100) if life.due(now) is not None]
    assert sent == [0, 1_700, 3_400, 5_100, 6_800, 8_500]


def test_an_answer_that_was_overtaken_takes_nothing_back() -> None:
    life = ServerLife(LIMITS)
    first, second = beat(life, 0), beat(life, 2_000)
    life.committed(second)
    life.committed(first)
    assert life.until_ms == 6_000
    life.committed(99)
    assert life.until_ms == 6_000
