"""Bandwidth: over any time the bytes that begin stay within the rates, and nothing waits for ever."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.admission.limit_options import RATES
from rebalance.core.admission.move_admission import (
    BURST_S,
    AdmissionRecord,
    ByteRates,
    Limits,
    Loads,
    Move,
    Rooms,
    TokenBuckets,
    admit,
    buckets_of,
)
from tests.fixtures.examples import examples

NODES = ("n1", "n2")
Z = ZoneId(1)
SIZE_MAX = 500

rates = st.none() | st.integers(1, 200)
limits_of = st.builds(lambda cluster, node: Limits(cluster_bytes_s=cluster, node_bytes_s=node), rates, rates)
names = st.lists(st.sampled_from(NODES), unique=True, max_size=2).map(lambda found: tuple(sorted(found)))
moves = st.builds(Move, names, names)
lines = st.lists(st.tuples(moves, st.integers(0, SIZE_MAX)), max_size=12)


def bytes_of(move: Move, size: int) -> dict[str, float]:
    """Bytes that a move takes from each node; ``*`` is the cluster."""
    total = size * len(move.receivers)
    found: dict[str, float] = defaultdict(float, {"*": total})
    for node in move.receivers:
        found[node] += size
    for node in move.donors:
        found[node] += total / len(move.donors)
    return found


@settings(max_examples=examples(300))
@given(limits_of, lines, st.data())
def test_rates_hold_and_nothing_starves(
    limits: Limits, line: list[tuple[Move, int]], data: st.DataObject
) -> None:
    """Looked at whenever a bucket opens and at any other time: between any two beginnings the bytes are at most
    rate * (time + burst) and the last move's more; and everything begins in a bounded number of looks."""
    waiting = dict(enumerate(line))
    stored: AdmissionRecord | None = None
    now_ms, begun = 0, []
    for _ in range(3 * len(line) + 1):
        buckets = buckets_of(stored)
        rooms = Rooms(limits, Loads(), {}, now_ms, None, buckets, lambda _zone, number: line[number][1])
        moves = {number: move for number, (move, _) in waiting.items()}
        taken = buckets.at(now_ms, limits.rates)
        for number in admit({Z: moves.items()}, rooms).get(Z, ()):
            move, size = waiting.pop(number)
            taken.take(move.donors, move.receivers, size)
            begun.append((now_ms, bytes_of(move, size)))
        assert all(rooms.cause(Z, move).startswith("BANDWIDTH: ") for move, _ in waiting.values())
        stored = AdmissionRecord.decode(AdmissionRecord(0, taken).encode())
        if not waiting:
            break
        opens_ms = taken.next_open_ms(limits.rates)
        assert opens_ms is not None, "what waits knows until when"
        assert opens_ms > now_ms
        now_ms = opens_ms + data.draw(st.integers(0, 3)) * 300
    assert not waiting
    for name, rate in (("*", limits.cluster_bytes_s), *((node, limits.node_bytes_s) for node in NODES)):
        check_rate([(at_ms, taken[name]) for at_ms, taken in begun if taken.get(name)], rate)


def check_rate(begun: list[tuple[int, float]], rate: int | None) -> None:
    """Check the rate for every pair of beginnings, from the first on up to before the last."""
    for first in range(len(begun)) if rate is not None else ():
        for last in range(first + 1, len(begun)):
            elapsed_s = (begun[last][0] - begun[first][0]) / 1_000
            before_last = sum(size for _, size in begun[first:last])
            assert before_last <= rate * (elapsed_s + BURST_S) + 1e-6


@given(st.integers(1, 1 << 40), st.floats(0, 1e12), st.integers(0, 10**6), st.integers(0, 10**6))
def test_it_makes_no_difference_how_often_somebody_looks(rate: int, taken: float, a_ms: int, b_ms: int) -> None:
    held = ByteRates(rate, rate)
    buckets = TokenBuckets(0, taken, {"n1": taken})
    twice = buckets.at(a_ms, held).at(a_ms + b_ms, held)
    once = buckets.at(a_ms + b_ms, held)
    assert abs(twice.cluster - once.cluster) <= 1e-3 + 1e-9 * taken
    late = once.at(0, held)
    assert late == late.at(a_ms + b_ms, held) == once, "a clock that is behind changes nothing"


def test_limits_keep_the_rates() -> None:
    limits = Limits(cluster_bytes_s=10, node_bytes_s=5)
    assert Limits.decode(limits.encode()) == limits
    assert limits.holds(0)
    assert not any(name.encode() in Limits().encode() for name in RATES)
    assert buckets_of(None) == buckets_of(AdmissionRecord(3)) == TokenBuckets()
