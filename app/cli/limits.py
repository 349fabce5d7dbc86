"""Limits of moves, and pauses: read from options, and printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.cli.connection import Api
from app.cli.exits import UsageError
from app.cli.options import AuditNote, OutputFormat
from app.cli.output import print_rows, say, say_json
from app.cli.problems import JsonObject
from rebalance.core.admission.limit_options import CAPS, LIMIT_OPTIONS, RATES, LimitKind, LimitOption, Window
from rebalance.core.admission.move_admission import rate_text


def print_limits(limits: JsonObject, form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        say_json(limits, indent=2 if form is OutputFormat.JSON else None)
        return
    print_rows(("limit", "value", "meaning"), list(_rows(limits)))
    for line in (*_waiting_lines(limits), *pause_lines(limits)):
        say(line)


def _rows(limits: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of all caps, and of the other limits those that are set."""
    for option in LIMIT_OPTIONS:
        value: Any = limits.get(option.name, option.unset)
        if option.kind is LimitKind.WINDOWS:
            yield from (("window", window, option.text) for window in value)
        elif option.kind is LimitKind.CAP or value != option.unset:
            yield option.name, _text(option.kind, value), option.text


def _text(kind: LimitKind, value: int | bool | None) -> str:
    if value is None:
        return "none"
    if kind is LimitKind.SWITCH:
        return "yes" if value else "no"
    return rate_text(value) if kind is LimitKind.RATE else str(value)


def _waiting_lines(limits: JsonObject) -> list[str]:
    """Line with the nodes that do not keep to a changed time of automatic resets yet; none where it was not
    changed."""
    nodes = limits.get("ha_reset_waits_for")
    if not nodes or limits.get("ha_reset_s") is None:
        return []
    return [
        f"ha_reset_s is not in force yet on {', '.join(nodes)}: they have not published that they keep to it"
    ]


def pause_lines(limits: JsonObject) -> list[str]:
    """A line for each pause: ``paused by alice since ...: new disks, until ...``."""
    lines = [f"paused {_pause_text(limits['pause'])}"] if limits["pause"] else []
    return lines + [f"zone {pause['zone']} paused {_pause_text(pause)}" for pause in limits["zone_pauses"]]


def summary(limits: JsonObject) -> list[str]:
    """Lines of ``zonectl status`` about limits; none where no limit is set."""
    caps = ", ".join(f"{name} {limits[name]}" for name in (*CAPS, *RATES) if limits.get(name) is not None)
    lines = [f"limits of moves: {caps}"] if caps else []
    lines += [
        row.status for row in LIMIT_OPTIONS if row.status and limits.get(row.name, row.unset) != row.unset
    ]
    windows = ", ".join(limits.get("windows", ()))
    lines += [f"moves begin in windows: {windows} UTC"] if windows else []
    return lines + pause_lines(limits)


def _pause_text(pause: JsonObject) -> str:
    reason = f": {pause['reason']}" if pause["reason"] else ""
    until = f", until {pause['until']}" if pause["until"] else ""
    return f"by {pause['by']} since {pause['since']}{reason}{until}"


_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SIZES = {"": 1}
for _power, _unit in enumerate("kmgt", 1):
    _SIZES |= {_unit: 1_000**_power, f"{_unit}i": 1_024**_power}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)((?:[kmgt]i?)?b?)", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,18}d)?(\d{1,18}h)?(\d{1,18}m)?(\d{1,18}s)?")
_NUMBER = re.compile(r"[0-9]{1,18}")
NONE = "none"


def limits_request(given: Mapping[str, Any]) -> JsonObject:
    """The body of a change, from flags by the names of their limits, with only those that are given. Raises
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
    if option.lowest is None and _NUMBER.fullmatch(flag):
        return int(flag)
    return _READERS[option.kind](flag, option.flag)


def number_of(text: str, flag: str) -> int:
    """Read a whole number from 1 on. Raises UsageError."""
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise UsageError(f"{flag} is a whole number from 1 on, or none, not {text!r}; `pause` stops all moves")
    return int(text)


def windows_of(texts: Sequence[str]) -> list[str]:
    """Read windows, in the form in which they are stored; ``none`` alone removes all. Raises UsageError."""
    if [text.lower() for text in texts] == [NONE]:
        return []
    try:
        return [str(Window.parse(text)) for text in texts]
    except ValueError as error:
        raise UsageError(f"--window: {error}; or none") from error


def bytes_of(text: str, flag: str) -> int:
    """Read a size: ``50MiB`` is 52428800, ``50MB`` 50000000. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _SIZES[match[2].lower().removesuffix("b")]) if match else 0
    if size < 1:
        raise UsageError(f"{flag} takes bytes a second as 500kB, 20MiB or 1.5GiB, or none, not {text!r}")
    return size


def seconds_of(text: str, flag: str = "--for") -> int:
    """Read a time in seconds: ``1h30m`` is 5400. Raises UsageError."""
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
    """Print the limits, after ``change`` if it is not empty. Raises CliError."""
    with api.client() as client:
        limits = client.ask("PATCH" if change else "GET", "rebalance", "limits", body=change or None)
    print_limits(limits, api.output)
    return 0
