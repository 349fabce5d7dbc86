"""Printing limits of moves and pauses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.cli.options import OutputFormat
from app.cli.output import print_rows
from app.cli.problem_document import JsonObject
from app.cli.say import say, say_json
from rebalance.core.admission.bandwidth import rate_text
from rebalance.core.admission.limit_options import CAPS, LIMIT_OPTIONS, RATES, LimitKind


def print_limits(limits: JsonObject, form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        say_json(limits, indent=2 if form is OutputFormat.JSON else None)
        return
    print_rows(("limit", "value", "meaning"), list(_rows(limits)))
    for line in (*_waiting_lines(limits), *pause_lines(limits)):
        say(line)


def _rows(limits: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Caps always; of all other limits those that are set."""
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
    """Nothing where nobody has set the time of automatic resets: it matters only where it was changed."""
    nodes = limits.get("ha_reset_waits_for")
    if not nodes or limits.get("ha_reset_s") is None:
        return []
    return [
        f"ha_reset_s is not in force yet on {', '.join(nodes)}: they have not published that they keep to it"
    ]


def pause_lines(limits: JsonObject) -> list[str]:
    """``paused by alice since ...: new disks, until ...``: one line a pause."""
    lines = [f"paused {_pause_text(limits['pause'])}"] if limits["pause"] else []
    return lines + [f"zone {pause['zone']} paused {_pause_text(pause)}" for pause in limits["zone_pauses"]]


def summary(limits: JsonObject) -> list[str]:
    """What ``zonectl status`` says of limits; nothing where none is set."""
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
