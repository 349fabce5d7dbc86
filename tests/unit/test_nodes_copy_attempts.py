"""Attempts at a copy: which of them count, when one has failed, and when the next one may begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.admission.limit_options import COPY_ATTEMPTS, COPY_S
from rebalance.core.admission.move_admission import Limits
from rebalance.nodes.copy_attempts import FAILED_RETRY_S, RETRY_MAX_S, CopyAttempts, CopyRules
from rebalance.ports.groups import FailureCode, ReconfigurationFailure

RULES = CopyRules(attempts_max=3, copy_s=60, revision=5)
HERE = (5, 11, frozenset(("n1", "n2")))
CODES = [code for code in FailureCode if code not in (FailureCode.LEADER_STEPPED_DOWN, FailureCode.CATCHING_UP)]


def failed(
    attempts: CopyAttempts, code: FailureCode, now_s: float, rules: CopyRules = RULES, *, copied: int = 0
) -> CopyAttempts:
    return attempts.after_failure(ReconfigurationFailure(code, ""), now_s, rules, copied=copied)


@pytest.mark.row("VOL-098", "VOL-099")
def test_defaults() -> None:
    """VOL-098, VOL-099: three attempts and ten days, unless the limits say otherwise."""
    assert (COPY_ATTEMPTS, COPY_S) == (3, 864_000)
    assert CopyRules.of(Limits(), 0) == CopyRules(3, 864_000, 0)
    assert CopyRules.of(Limits(copy_attempts=5, copy_s=60), 9) == CopyRules(5, 60, 9)


@pytest.mark.row("VOL-098")
@pytest.mark.parametrize("code", CODES)
def test_what_counts(code: FailureCode) -> None:
    """VOL-098: what went wrong counts; a group that is not healthy yet and a copy with time left do not."""
    ordinary = code.value in ("UNHEALTHY_CLUSTER", "SUPERSEDED", "CANCELLED", "CATCH_UP_TIMEOUT")
    assert failed(CopyAttempts(since_s=0.0), code, 15.0).counted == (not ordinary)


@pytest.mark.row("VOL-098")
def test_exactly_as_many_attempts_as_allowed() -> None:
    """VOL-098: told once, with the third; the next attempt is a while away then, and not before."""
    attempts, told = CopyAttempts(since_s=0.0), []
    for number in range(1, 6):
        before, attempts = attempts, failed(attempts, FailureCode.REFUSED, float(number))
        assert attempts.published_cause("REFUSED: x", RULES).startswith("COPY_FAILED") == (number >= 3)
        told.append(attempts.becomes_failed(before, RULES))
        waits_s = attempts.not_before_s - number
        assert waits_s == pytest.approx(FAILED_RETRY_S) if number >= 3 else waits_s <= RETRY_MAX_S
    assert told == [False, False, True, False, False]
    assert attempts.published_cause("REFUSED: x", RULES) == "COPY_FAILED: 5 attempts: REFUSED: x"


@pytest.mark.row("VOL-099")
def test_a_copy_that_takes_too_long_has_failed() -> None:
    """VOL-099: attempts of 15 s that end with CATCH_UP_TIMEOUT are one copy until its time is over; then the
    clock of the next one begins."""
    attempts, counts = CopyAttempts().under(HERE, 0.0), []
    for look in range(1, 11):
        attempts = failed(attempts, FailureCode.CATCH_UP_TIMEOUT, 15.0 * look)
        counts.append(attempts.counted)
    assert counts == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2]


NOT_STARTED = FailureCode.MEMBER_NOT_STARTED


@pytest.mark.row("M3")
def test_a_copy_that_arrives_has_not_failed() -> None:
    """M3: its member starts only once it is whole. What went wrong before is over, and the next attempt is
    soon; no attempt that fails for another cause is forgiven, and none once the copy's time is over."""
    attempts = CopyAttempts().under(HERE, 0.0)
    for number in range(1, 4):
        attempts = failed(attempts, NOT_STARTED, 15.0 * number, copied=1)
    assert attempts.is_failed(RULES)
    attempts = failed(attempts, NOT_STARTED, 56.0, copied=20)
    assert attempts.counted == 0
    assert attempts.not_before_s <= 56.0 + RETRY_MAX_S
    assert failed(attempts, FailureCode.REFUSED, 58.0, copied=30).counted == 1
    rules = CopyRules(3, COPY_S)
    for number in range(1, 100):
        attempts = failed(attempts, NOT_STARTED, 56.0 + 15.0 * number, rules, copied=20 + number)
        assert attempts.counted == 0
    assert failed(attempts, NOT_STARTED, 2.0 * COPY_S, rules, copied=999).counted == 1


@pytest.mark.row("VOL-098")
def test_a_copy_that_arrives_no_more_fails_as_ever() -> None:
    """VOL-098; a copy that begins from nothing again and again is none that arrives."""
    attempts = failed(CopyAttempts().under(HERE, 0.0), NOT_STARTED, 15.0, copied=20)
    counts = []
    for number, copied in enumerate((20, 20, 5, 5, 5), 2):
        attempts = failed(attempts, NOT_STARTED, 15.0 * number, copied=copied)
        counts.append(attempts.counted)
    assert counts == [1, 2, 3, 4, 5]


@pytest.mark.row("VOL-098")
@pytest.mark.parametrize(
    ("circumstances", "renews"),
    [
        (HERE, False),
        ((6, 11, HERE[2]), True),
        ((5, 12, HERE[2]), True),
        ((5, 11, frozenset(("n1",))), True),
    ],
)
def test_what_has_failed_is_tried_again(circumstances: tuple[int, int, frozenset[str]], renews: bool) -> None:
    """VOL-098: at once when the limits were written (a resume does), the target is another, nodes changed."""
    attempts = CopyAttempts().under(HERE, 0.0)
    for number in range(3):
        attempts = failed(attempts, FailureCode.REFUSED, float(number))
    again = attempts.under(circumstances, 4.0)
    assert again.is_failed(RULES) is not renews
    assert (again.not_before_s <= 4.0) is renews


@given(st.lists(st.tuples(st.sampled_from(CODES), st.floats(0.0, 100.0)), max_size=40), st.integers(1, 5))
def test_rules_hold_for_any_series(series: list[tuple[FailureCode, float]], attempts_max: int) -> None:
    """Counts never fall while circumstances stay, it is told once, and every wait is bounded."""
    rules = CopyRules(attempts_max, 60, 5)
    attempts, now_s, told = CopyAttempts().under(HERE, 0.0), 0.0, 0
    for code, later_s in series:
        now_s += later_s
        before = attempts.under(HERE, now_s)
        attempts = failed(before, code, now_s, rules)
        assert before.counted <= attempts.counted <= before.counted + 1
        assert now_s < attempts.not_before_s <= now_s + FAILED_RETRY_S
        assert attempts.is_failed(rules) == (attempts.counted >= attempts_max)
        told += attempts.becomes_failed(before, rules)
    assert told == attempts.is_failed(rules)
