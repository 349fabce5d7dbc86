"""Levels of log lines by module, and changes of them that end by themselves.

A change is the key ``logging/<module>``, under a lease that is not renewed, and with its end in the record: one
that the metastore does not delete in time is over all the same. Every process follows the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from catalog.core.codec import Codec, Record
from catalog.core.errors import ErrorKind, RefusedError

FOR_S_DEFAULT = 3_600
FOR_S_MAX = 7 * 86_400
MODULE_MAX = 100
CHANGES_MAX = 50
"""More at once are refused."""


class LineLevel(Enum):
    """The least that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


OTHERS = LineLevel.WARNING
"""Level of modules that the tables below do not name."""
OURS = ("app", "catalog", "parser", "rebalance", "spark")
LIBRARIES: Mapping[str, LineLevel] = {
    "alembic": LineLevel.INFO,
    "asyncio": LineLevel.WARNING,
    "nicegui": LineLevel.WARNING,
    "py.warnings": LineLevel.WARNING,
    "uvicorn": LineLevel.WARNING,
}
"""Their level can be changed, though not to DEBUG, where they write headers with credentials. Libraries that
write parameters of statements at INFO are not listed."""
DEFAULTS: Mapping[str, LineLevel] = {**dict.fromkeys(OURS, LineLevel.INFO), **LIBRARIES}

MODULE_PATTERN = rf"^({'|'.join(map(re.escape, DEFAULTS))})(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""Pattern of the names of modules whose level can be changed."""
_MODULE = re.compile(MODULE_PATTERN)


@dataclass(frozen=True, slots=True)
class LogLevel(Record):
    """``since_ms`` and ``until_ms``: milliseconds since 1970, UTC."""

    level: LineLevel
    since_ms: int
    until_ms: int
    by: str
    reason: str = ""

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms


LogLevel.codec = Codec(LogLevel)


def root_of(module: str) -> str | None:
    """The first of the modules with a level that ``module`` is, or is inside of; None: it is in none."""
    return next((root for root in DEFAULTS if f"{module}.".startswith(f"{root}.")), None)


def checked_module(module: str, level: LineLevel | None = None) -> str:
    """``module``, if it may have ``level``; None: if it has one. Raises RefusedError (INVALID_REQUEST)."""
    is_name = len(module) <= MODULE_MAX and _MODULE.fullmatch(module) is not None
    root = root_of(module) if is_name else None
    if root is None:
        raise RefusedError(
            ErrorKind.INVALID_REQUEST,
            f"{module[:MODULE_MAX]!a} is not a module with a level: give {', '.join(DEFAULTS)}, or a module "
            "inside one, for example rebalance.nodes",
        )
    if root in LIBRARIES and level is LineLevel.DEBUG:
        raise RefusedError(
            ErrorKind.INVALID_REQUEST,
            f"{module} does not take the level debug, at which libraries write credentials: give info, warning "
            "or error",
        )
    return module


def levels_now(changes: Iterable[tuple[str, LogLevel]], now_ms: int) -> dict[str, LineLevel]:
    """Changed levels that hold now, by module. A change that this build would refuse is left out."""
    levels: dict[str, LineLevel] = {}
    for module, change in changes:
        try:
            checked_module(module, change.level)
        except RefusedError:
            continue
        if change.holds(now_ms):
            levels[module] = change.level
    return levels


def next_end_ms(changes: Iterable[LogLevel], now_ms: int) -> int | None:
    """Time (Unix, milliseconds) at which the first of the changes that hold is over; None: none holds."""
    return min((change.until_ms for change in changes if change.holds(now_ms)), default=None)
