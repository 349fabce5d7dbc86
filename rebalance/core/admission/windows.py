"""Maintenance windows: times of the UTC day in which moves may begin.

A window is written ``22:00-04:00`` (it crosses midnight), or with the days on which it opens: ``Sat,Sun
22:00-04:00``, ``Mon-Fri 01:00-05:00``. It opens at its first minute and is closed from its last one on; windows
of one set may overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES = 24 * 60
MINUTE_MS = 60_000
DAY_MS = DAY_MINUTES * MINUTE_MS
EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday."""
WINDOWS_MAX = 50

_TIME = r"([01][0-9]|2[0-4]):([0-5][0-9])"
_WINDOW = re.compile(rf"(?:([A-Za-z,-]+) +)?{_TIME}-{_TIME}")
_ALLOWED = "22:00-04:00 in UTC, or with days as in Sat,Sun 22:00-04:00 or Mon-Fri 01:00-05:00"


@dataclass(frozen=True, slots=True)
class Window:
    """From ``start`` to ``end``, minutes of the UTC day; an end that is not after the start is on the next
    day. ``days`` (0 is Monday, ascending, empty: each) are those on which it opens."""

    start: int
    end: int
    days: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Window:
        """Raises ValueError, which says what was found and what is allowed."""
        match = _WINDOW.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a window: it is written {_ALLOWED}")
        days, *times = match.groups()
        first_h, first_m, last_h, last_m = map(int, times)
        start, end = 60 * first_h + first_m, 60 * last_h + last_m
        if start >= DAY_MINUTES or end > DAY_MINUTES:
            raise ValueError(f"{text!r} is not a window: a day begins at 00:00 and ends at 24:00")
        if start == end:
            raise ValueError(f"{text!r} is not a window: it ends when it opens; the whole day is 00:00-24:00")
        return cls(start, end, _days(days, text) if days else ())

    @property
    def length_ms(self) -> int:
        after_midnight = DAY_MINUTES if self.end <= self.start else 0
        return (self.end + after_midnight - self.start) * MINUTE_MS

    def __str__(self) -> str:
        days = ",".join(DAYS[day] for day in self.days)
        return f"{days} {_clock(self.start)}-{_clock(self.end)}".lstrip()

    def opening_ms(self, day: int) -> int | None:
        """When it opens on the day with this number since 1970, in milliseconds; None: it stays closed."""
        if self.days and (day + EPOCH_WEEKDAY) % 7 not in self.days:
            return None
        return day * DAY_MS + self.start * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Opening:
    """``window`` opens next, at ``at_ms`` (milliseconds since 1970)."""

    window: Window
    at_ms: int


def is_open(windows: Sequence[Window], now_ms: int) -> bool:
    """Whether moves may begin at ``now_ms``. Without windows they may always."""
    if not windows:
        return True
    today = now_ms // DAY_MS
    # One that opened yesterday may still be open.
    openings = ((window, window.opening_ms(day)) for window in windows for day in (today - 1, today))
    return any(at_ms is not None and at_ms <= now_ms < at_ms + window.length_ms for window, at_ms in openings)


def next_opening(windows: Sequence[Window], now_ms: int) -> Opening | None:
    """The window that opens next while none is open, the first of several; None: one is open, or there is
    none."""
    if is_open(windows, now_ms):
        return None
    today = now_ms // DAY_MS
    openings = ((window, window.opening_ms(today + ahead)) for ahead in range(8) for window in windows)
    later = [Opening(window, at_ms) for window, at_ms in openings if at_ms is not None and at_ms > now_ms]
    return min(later, key=lambda opening: opening.at_ms)


def _days(text: str, window: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = _day(first, window), _day(last or first, window)
        # Sat-Mon goes over the end of the week.
        days.update((begin + ahead) % 7 for ahead in range((end - begin) % 7 + 1))
    return tuple(sorted(days))


def _day(text: str, window: str) -> int:
    try:
        return DAYS.index(text.capitalize())
    except ValueError:
        allowed = ", ".join(DAYS)
        raise ValueError(f"{window!r} is not a window: {text!r} is not a day; days are {allowed}") from None


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
