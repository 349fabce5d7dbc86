"""Maintenance windows against a week that is walked through minute by minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.admission.limit_options import DAY_MINUTES, DAYS, MINUTE_MS, Window, is_open, next_opening
from rebalance.core.admission.move_admission import Limits

WEEK = 7 * DAY_MINUTES
THURSDAY = 3 * DAY_MINUTES
"""1970 began on a Thursday; minutes of the week begin on Monday."""

windows = st.builds(
    Window,
    st.integers(0, DAY_MINUTES - 1),
    st.integers(0, DAY_MINUTES),
    st.lists(st.integers(0, 6), unique=True).map(lambda found: tuple(sorted(found))),
).filter(lambda window: window.start != window.end)
sets = st.lists(windows, min_size=1, max_size=3)
moments = st.integers(0, 2 * WEEK * MINUTE_MS)


def open_minutes(window: Window) -> set[int]:
    """Open minutes of the week, the simple way."""
    found = set()
    for day in window.days or range(7):
        minute = window.start
        while True:
            found.add((day * DAY_MINUTES + minute) % WEEK)
            minute += 1
            if minute % DAY_MINUTES == window.end % DAY_MINUTES:
                break
    return found


@given(sets, moments)
def test_open_is_what_the_week_says(found: list[Window], now_ms: int) -> None:
    minute = (now_ms // MINUTE_MS + THURSDAY) % WEEK
    assert is_open(found, now_ms) == any(minute in open_minutes(window) for window in found)


@given(sets, moments)
def test_the_next_opening_is_the_first_open_moment(found: list[Window], now_ms: int) -> None:
    opening = next_opening(found, now_ms)
    if opening is None:
        assert is_open(found, now_ms)
        return
    assert now_ms < opening.at_ms <= now_ms + WEEK * MINUTE_MS
    assert is_open([opening.window], opening.at_ms)
    assert not is_open(found, now_ms)
    assert not is_open(found, opening.at_ms - 1)
    assert Limits(windows=tuple(found)).next_end_ms(now_ms) == opening.at_ms


@given(sets)
def test_windows_are_read_as_they_are_written(found: list[Window]) -> None:
    assert [Window.parse(str(window)) for window in found] == found
    limits = Limits(windows=tuple(found))
    assert Limits.decode(limits.encode()) == limits
    assert b"windows" not in Limits().encode()


def test_without_windows_it_is_always_open() -> None:
    assert is_open((), 5)
    assert next_opening((), 5) is None


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("22:00-04:00", "22:00-04:00"),
        (" sat,SUN  00:00-24:00", "Sat,Sun 00:00-24:00"),
        ("Sat-Mon 01:30-02:00", "Mon,Sat,Sun 01:30-02:00"),
        ("Fri,Mon-Tue 01:30-02:00", "Mon,Tue,Fri 01:30-02:00"),
        ("23:59-00:00", "23:59-00:00"),
    ],
)
def test_forms(text: str, stored: str) -> None:
    assert str(Window.parse(text)) == stored


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("night", "'night' is not a window: it is written 22:00-04:00"),
        ("9:00-10:00", "is not a window"),
        ("24:00-01:00", "a day begins at 00:00 and ends at 24:00"),
        ("01:00-24:30", "a day begins at 00:00 and ends at 24:00"),
        ("10:00-10:00", "it ends when it opens; the whole day is 00:00-24:00"),
        ("Sat,Funday 10:00-11:00", f"'Funday' is not a day; days are {', '.join(DAYS)}"),
        ("Sat, 10:00-11:00", "'' is not a day"),
    ],
)
def test_what_is_no_window_says_what_is(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="is not a window") as refused:
        Window.parse(text)
    assert told in str(refused.value)
