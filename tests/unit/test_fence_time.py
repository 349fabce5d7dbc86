"""Arithmetic of the time until which a node's members may run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.topology.fencing import SECOND, FenceTime

LEASE, FENCE = 5 * SECOND, 6 * SECOND
FRESH = FenceTime(LEASE, FENCE)


def at(*steps: tuple[str, float] | tuple[str, float, float]) -> FenceTime:
    """``confirmed`` at a second, ``no_majority`` from one second to another."""
    time = FRESH
    for name, *seconds in steps:
        moments = [int(each * SECOND) for each in seconds]
        time = time.confirmed(*moments) if name == "confirmed" else time.no_majority(*moments)
    return time


@pytest.mark.parametrize(
    ("steps", "deadline_s"),
    [
        ((), 0),
        ((("confirmed", 100),), 106),
        # An answer that is read late says nothing of the time after its question.
        ((("confirmed", 100), ("confirmed", 98)), 106),
        ((("confirmed", 100), ("no_majority", 103, 103.5)), 109),
        ((("no_majority", 103, 103.5),), 0),
        # The lease had an end by then, perhaps.
        ((("confirmed", 100), ("no_majority", 104, 104.6)), 106),
        ((("confirmed", 100), ("no_majority", 103, 103.5), ("no_majority", 107, 107.5)), 113),
        ((("confirmed", 100), ("no_majority", 103, 103.5), ("no_majority", 107.1, 107.6)), 109),
        ((("confirmed", 100), ("no_majority", 103, 103.5), ("confirmed", 102)), 109),
        ((("confirmed", 100), ("no_majority", 103, 103.5), ("confirmed", 104)), 110),
        ((("confirmed", 100), ("no_majority", 99, 99.5)), 106),
    ],
)
def test_what_counts(steps: tuple[tuple[str, float], ...], deadline_s: float) -> None:
    time = at(*steps)
    assert time.deadline_ns == deadline_s * SECOND
    if time.mark_ns is not None:
        assert not time.is_over(time.deadline_ns - 1)
    assert time.is_over(time.deadline_ns)


def test_a_shorter_fence_ends_earlier() -> None:
    assert at(("confirmed", 100)).kept_to(5_000).deadline_ns == 105 * SECOND
    with pytest.raises(ValueError, match="shorter than a lease"):
        FRESH.kept_to(4_999)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 4)), max_size=12),
    st.integers(5, 9),
)
def test_no_evidence_moves_a_deadline_that_has_passed(steps: list[tuple[bool, int, int]], fence_s: int) -> None:
    """A confirmation alone lets members start again, whatever came before it."""
    time = FenceTime(LEASE, fence_s * SECOND)
    for is_confirmed, quarter, took in steps:
        sent_ns = quarter * SECOND // 4
        answered_ns = sent_ns + took * SECOND // 4
        if is_confirmed:
            time = time.confirmed(sent_ns)
            continue
        later = time.no_majority(sent_ns, answered_ns)
        if time.is_over(answered_ns):
            assert later == time
        assert later.deadline_ns <= max(time.deadline_ns, sent_ns + time.fence_ns)
        time = later
