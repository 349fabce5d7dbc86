"""A pause between its bounds, whatever number of failures and whatever chance."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.backoff import Backoff

SECONDS = st.floats(min_value=1e-6, max_value=1e300)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first_s, most_s = sorted((draw(SECONDS), draw(SECONDS)))
    jitter = draw(st.floats(min_value=0.0, max_value=1.0))
    growth = draw(st.floats(min_value=1.0, max_value=1e300))
    return Backoff(first_s, most_s, jitter, growth)


@given(backoffs(), st.integers(min_value=1, max_value=3_000), st.floats(min_value=0.0, max_value=1.0))
def test_a_delay_stays_between_its_bounds(backoff: Backoff, failures: int, chance: float) -> None:
    pauses = []
    for _ in range(failures):
        backoff = backoff.failed()
        pauses.append(backoff.pause_s)
    assert pauses[0] == backoff.first_s
    assert pauses == sorted(pauses)
    assert pauses[-1] <= backoff.most_s
    delay_s = backoff.delay_s(chance)
    assert 0.0 <= delay_s <= backoff.pause_s
    assert delay_s >= backoff.pause_s * (1.0 - backoff.jitter)


@given(backoffs(), st.integers(min_value=1, max_value=40))
def test_pauses_grow_as_the_exact_power_does_until_the_most(backoff: Backoff, failures: int) -> None:
    """Against the formula that hand-written retries had, in numbers that cannot overflow."""
    last = backoff
    for _ in range(failures):
        last = last.failed()
    exact = Fraction(backoff.first_s) * Fraction(backoff.growth) ** (failures - 1)
    expected = min(exact, Fraction(backoff.most_s))
    assert math.isclose(last.pause_s, float(expected), rel_tol=1e-9)


@given(backoffs(), st.floats(allow_nan=False))
def test_no_chance_leaves_the_bounds(backoff: Backoff, chance: float) -> None:
    assert 0.0 <= backoff.failed().delay_s(chance) <= backoff.first_s


@given(backoffs(), SECONDS)
def test_another_bound_keeps_what_has_failed(backoff: Backoff, most_s: float) -> None:
    failed = backoff.failed().failed().up_to(most_s)
    assert failed.has_failed
    assert failed.pause_s <= max(most_s, backoff.first_s)
    assert failed.first_s == backoff.first_s


def test_a_million_failures_in_a_row() -> None:
    backoff = Backoff(0.2, 10.0)
    for _ in range(10**6):
        backoff = backoff.failed()
    assert backoff.pause_s == 10.0
    assert backoff.delay_s(1.0) == pytest.approx(8.0)
    assert backoff.fresh().delay_s(0.0) == 0.0
    assert backoff.fresh().failed().pause_s == 0.2


@pytest.mark.parametrize(
    ("first_s", "most_s", "jitter", "growth"),
    [
        (0.0, 1.0, 0.0, 2.0),
        (2.0, 1.0, 0.0, 2.0),
        (1.0, math.inf, 0.0, 2.0),
        (math.nan, 1.0, 0.0, 2.0),
        (1.0, 2.0, 1.1, 2.0),
        (1.0, 2.0, -0.1, 2.0),
        (1.0, 2.0, 0.0, 0.9),
        (1.0, 2.0, 0.0, math.nan),
    ],
)
def test_bounds_that_could_not_be_kept_are_refused(
    first_s: float, most_s: float, jitter: float, growth: float
) -> None:
    with pytest.raises(ValueError, match="no such backoff"):
        Backoff(first_s, most_s, jitter, growth)
