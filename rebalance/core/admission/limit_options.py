"""The limits of moves: one table, from which everything that reads or shows limits is made.

A row is a field of ``LimitValues``; its name is that of the stored record and of the API. Made from the rows:
the codec of the record, the API's models and their descriptions, the flags and help of ``zonectl rebalance
limits`` and what it prints, the form of the console, and ``docs/limits.md``. To add a limit, add its row here,
and what it means where it decides something (``rebalance.core.admission.move_admission``: what holds moves).

Imports nothing heavy: the command line reads this table before it knows what it is asked for.

Maintenance windows are times of the UTC day in which moves may begin. One is written ``22:00-04:00`` (it
crosses midnight), or with the days on which it opens: ``Sat,Sun 22:00-04:00``, ``Mon-Fri 01:00-05:00``. It
opens at its first minute and is closed from its last one on; windows of one set may overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

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
    """A time from ``start`` to ``end``, minutes of the UTC day; an end that is not after the start is on the
    next day. ``days`` (0 is Monday, ascending, empty: each) are those on which it opens."""

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
        """Time of its opening on the day of this number since 1970, in milliseconds; None: it stays closed."""
        if self.days and (day + EPOCH_WEEKDAY) % 7 not in self.days:
            return None
        return day * DAY_MS + self.start * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Opening:
    """``window`` opens next, at ``at_ms`` (milliseconds since 1970)."""

    window: Window
    at_ms: int


def is_open(windows: Sequence[Window], now_ms: int) -> bool:
    """True if moves may begin at ``now_ms``. Without windows they may always."""
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


INT32_MAX = (1 << 31) - 1
RATE_MAX = 1 << 50
COPY_ATTEMPTS = 3
COPY_S = 10 * 24 * 60 * 60
JOINER_S = 60
RESET_S = 10


class LimitKind(Enum):
    """Kind of the value of a limit."""

    CAP = "moves at once"  # admission counts what moves against it
    COUNT = "number"
    SECONDS = "seconds"
    RATE = "bytes per second"
    SWITCH = "yes or no"
    WINDOWS = "windows of the UTC day"


@dataclass(frozen=True, slots=True)
class LimitOption:
    """One row. ``title`` labels a field of a form, ``text`` is a noun phrase that says what the value is.

    ``default``: what holds while the limit is not set, in the unit of its kind; None: no limit. ``unset`` is
    the value that stands for that. ``lowest`` and ``highest`` are inclusive bounds of a value in its unit;
    ``lowest`` None: only a server knows it, and ``bounds`` says what it is made of. ``flag`` is the command
    line's, with the negative form of a switch behind a slash. ``status``: the line of ``zonectl status`` for a
    switch that is not as it is by default.
    """

    kind: LimitKind
    title: str
    text: str
    flag: str = ""
    default: int | None = None
    bounds: str = ""
    status: str = ""
    lowest: int | None = 1
    highest: int = INT32_MAX
    name: str = ""
    unset: int | bool | tuple[Window, ...] | None = None

    @property
    def sentence(self) -> str:
        """``text`` with a capital, for help and labels; no full stop."""
        return self.text[0].upper() + self.text[1:]

    @property
    def is_number(self) -> bool:
        return self.kind not in (LimitKind.SWITCH, LimitKind.WINDOWS)

    @property
    def accepted(self) -> str:
        """Bounds, as help and documents say them; empty for what is no number."""
        if not self.is_number:
            return ""
        return self.bounds or f"from {self.lowest}"

    @property
    def otherwise(self) -> str:
        """Words for the value that holds while the limit is not set."""
        if self.kind is LimitKind.SWITCH:
            return "yes" if self.unset else "no"
        if self.kind is LimitKind.WINDOWS:
            return "always"
        if self.default is None:
            return "no limit"
        return time_text(self.default) if self.kind is LimitKind.SECONDS else str(self.default)


def time_text(seconds: int) -> str:
    """``10d``, ``1m``, ``90s``: in the largest unit that gives a whole number."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _row(kind: LimitKind, title: str, text: str, **rest: Any) -> Any:
    """A field of ``LimitValues`` with its row; what the kind says may be left out."""
    rest = {"highest": RATE_MAX if kind is LimitKind.RATE else INT32_MAX, "unset": _UNSET.get(kind), **rest}
    return field(default=rest["unset"], metadata={"row": LimitOption(kind, title, text, **rest)})


_UNSET = {LimitKind.SWITCH: False, LimitKind.WINDOWS: ()}


@dataclass(frozen=True, slots=True)
class LimitValues:
    """The value of each limit. Numbers are at least 1, None where there is no limit of one's own."""

    cluster_moves: int | None = _row(
        LimitKind.CAP, "Whole cluster", "partitions that move at once in the whole cluster"
    )
    zone_moves: int | None = _row(LimitKind.CAP, "Each zone", "partitions that move at once in each zone")
    donor_moves: int | None = _row(
        LimitKind.CAP, "Away from each node", "partitions that move away from a node at once"
    )
    receiver_moves: int | None = _row(
        LimitKind.CAP, "Onto each node", "partitions that move onto a node at once"
    )
    batch_size: int | None = _row(
        LimitKind.CAP, "Batch", "moves of a zone that begin together; the next batch waits for their end"
    )
    one_operation: bool = _row(
        LimitKind.SWITCH,
        "One operation at a time",
        "run one operation at a time; moves of the next one wait for its end",
        flag="--one-operation/--any-operations",
        status="one operation at a time",
    )
    operation_s: int | None = _row(
        LimitKind.SECONDS, "Time of an operation", "time limit of an operation, which is FAILED then"
    )
    copy_attempts: int | None = _row(
        LimitKind.COUNT,
        "Attempts at a copy",
        "failed attempts before a partition is reported as failed",
        default=COPY_ATTEMPTS,
    )
    copy_s: int | None = _row(
        LimitKind.SECONDS, "Time of a copy", "time limit of one attempt at a copy", default=COPY_S
    )
    joiner_s: int | None = _row(
        LimitKind.SECONDS,
        "Absence of a target",
        "time that the target of a move may be down before the move continues without it",
        flag="--joiner-timeout",
        default=JOINER_S,
    )
    cluster_bytes_s: int | None = _row(
        LimitKind.RATE,
        "Bandwidth of the cluster",
        "bytes per second of the copies that begin, in the whole cluster",
    )
    node_bytes_s: int | None = _row(
        LimitKind.RATE,
        "Bandwidth of each node",
        "bytes per second of the copies that begin, to and from each node",
    )
    windows: tuple[Window, ...] = _row(
        LimitKind.WINDOWS,
        "Windows, UTC",
        "times of the UTC day in which moves may begin, as 22:00-04:00 or Sat,Sun 00:00-24:00",
    )
    rebalancing: bool = _row(
        LimitKind.SWITCH,
        "Accept changes that move data",
        "accept requests that move data; running moves go on either way",
        flag="--rebalancing/--no-rebalancing",
        status="rebalancing is turned off",
        unset=True,
    )
    keep_copies: bool = _row(
        LimitKind.SWITCH,
        "Keep copies",
        "keep copies of replicas that leave a node until their operation is finalised",
        flag="--keep-copies/--delete-copies",
        status="copies are kept until they are finalised",
    )
    ha_reset_s: int | None = _row(
        LimitKind.SECONDS,
        "Automatic reset",
        "time without a majority after which a HIGH_AVAILABILITY partition is founded anew",
        flag="--ha-reset",
        default=RESET_S,
        lowest=None,
        bounds="from the nodes' lease and 4s on",
    )


def _named(row: LimitOption, name: str) -> LimitOption:
    """The flag is made of the name where the row has none."""
    flag = name.replace("_bytes_s", "_bandwidth")
    flag = re.sub("_s$", "_time", flag) if row.kind is LimitKind.SECONDS else flag
    flag = flag.removesuffix("s") if row.kind is LimitKind.WINDOWS else flag
    return replace(row, name=name, flag=row.flag or f"--{flag.replace('_', '-')}")


LIMIT_OPTIONS = tuple(_named(limit.metadata["row"], limit.name) for limit in fields(LimitValues))
"""All limits, in the order of the record, of help and of forms."""
CAPS = tuple(option.name for option in LIMIT_OPTIONS if option.kind is LimitKind.CAP)
RATES = tuple(option.name for option in LIMIT_OPTIONS if option.kind is LimitKind.RATE)
