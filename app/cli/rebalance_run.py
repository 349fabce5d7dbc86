"""What ``zonectl rebalance`` does once its options are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.cli.connection import Api
from app.cli.exits import UsageError
from app.cli.options import AuditNote
from app.cli.problem_document import JsonObject
from app.cli.rebalance_view import print_limits
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, LimitKind, LimitOption
from rebalance.core.admission.windows import Window

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SIZES = {"": 1}
for _power, _unit in enumerate("kmgt", 1):
    _SIZES |= {_unit: 1_000**_power, f"{_unit}i": 1_024**_power}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)((?:[kmgt]i?)?b?)", re.IGNORECASE)
_TIME = re.compile(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?")
NONE = "none"


def limits_request(given: Mapping[str, Any]) -> JsonObject:
    """The body of a change, from flags by the names of their limits: what is given, and nothing else. Raises
    UsageError."""
    flags = {option: given[option.name] for option in LIMIT_OPTIONS}
    return {option.name: _value(option, flag) for option, flag in flags.items() if flag not in (None, [])}


def _value(option: LimitOption, flag: Any) -> object:
    if option.kind is LimitKind.SWITCH:
        return flag
    if option.kind is LimitKind.WINDOWS:
        return windows_of(flag)
    if flag.lower() == NONE:
        return None
    # The server knows the lowest value, and says why.
    if option.lowest is None and flag.isascii() and flag.isdecimal():
        return int(flag[:18])
    return _READERS[option.kind](flag, option.flag)


def number_of(text: str, flag: str) -> int:
    """Raises UsageError."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"{flag} is a whole number from 1 on, or none, not {text!r}; `pause` stops all moves")
    return int(text)


def windows_of(texts: Sequence[str]) -> list[str]:
    """Windows as they are stored; ``none`` alone removes all. Raises UsageError."""
    if [text.lower() for text in texts] == [NONE]:
        return []
    try:
        return [str(Window.parse(text)) for text in texts]
    except ValueError as error:
        raise UsageError(f"--window: {error}; or none") from error


def bytes_of(text: str, flag: str) -> int:
    """``50MiB`` is 52428800, ``50MB`` 50000000. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _SIZES[match[2].lower().removesuffix("b")]) if match else 0
    if size < 1:
        raise UsageError(f"{flag} takes bytes a second as 500kB, 20MiB or 1.5GiB, or none, not {text!r}")
    return size


def seconds_of(text: str, flag: str = "--for") -> int:
    """``1h30m`` is 5400. Raises UsageError."""
    match = _TIME.fullmatch(text.strip().lower())
    parts = [part for part in match.groups() if part] if match else []
    seconds = sum(int(part[:-1]) * _UNITS_S[part[-1]] for part in parts)
    if not seconds:
        raise UsageError(f"{flag} takes a time as 90s, 10m, 1h30m or 2d, not {text!r}")
    return seconds


_READERS: dict[LimitKind, Callable[[str, str], int]] = {
    LimitKind.CAP: number_of,
    LimitKind.COUNT: number_of,
    LimitKind.SECONDS: seconds_of,
    LimitKind.RATE: bytes_of,
}


def pause_request(note: AuditNote, time_limit: str | None) -> JsonObject:
    """The body of a pause. Raises UsageError."""
    for_s = None if time_limit is None else seconds_of(time_limit)
    return {**note.body(), "for_s": for_s}


def paused(zone: str | None, pause: JsonObject | None) -> JsonObject:
    """The body of a change of the cluster's pause, or of one zone's; None ends it."""
    return {"pause": pause} if zone is None else {"zone_pauses": {zone: pause}}


def show_limits(api: Api, change: Mapping[str, object]) -> int:
    """The limits after ``change``; empty: as they are. Raises CliError."""
    with api.client() as client:
        limits = client.change_limits(change) if change else client.limits()
    print_limits(limits, api.form)
    return 0
