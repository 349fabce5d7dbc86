"""What ``zonectl rebalance`` does once its options are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from app.cli.client import ApiClient
from app.cli.exits import UsageError
from app.cli.options import OutputFormat, asker
from app.client.problem import JsonObject
from rebalance.core.windows import Window

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SIZES = {"": 1}
for _power, _unit in enumerate("kmgt", 1):
    _SIZES |= {_unit: 1_000**_power, f"{_unit}i": 1_024**_power}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)((?:[kmgt]i?)?b?)", re.IGNORECASE)
_TIME = re.compile(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?")


TIME_OPTIONS = {
    "operation_s": "--operation-time",
    "copy_s": "--copy-time",
    "joiner_s": "--joiner-timeout",
    "ha_reset_s": "--ha-reset",
}


def cap_of(option: str, text: str) -> int | None:
    """A limit as it is written; None takes it away. Raises UsageError."""
    if text.lower() == "none":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        flag = f"--{option.replace('_', '-')}"
        raise UsageError(
            f"{flag} is a whole number from 1 on, or none, not {text!r}; `pause` lets nothing begin"
        )
    return int(text)


def limits_request(
    caps: Mapping[str, str | None],
    times: Mapping[str, str | None],
    rates: Mapping[str, str | None],
    switches: Mapping[str, bool | None],
    windows: Sequence[str] | None = None,
) -> JsonObject:
    """The body of a change: what is given, and nothing else. Raises UsageError."""
    change: JsonObject = {name: cap_of(name, text) for name, text in caps.items() if text is not None}
    change |= {name: value for name, value in switches.items() if value is not None}
    for name, text in times.items():
        if text is not None:
            option = TIME_OPTIONS[name]
            # The server knows the smallest time of resets, and says why.
            is_plain = name == "ha_reset_s" and text.isascii() and text.isdecimal()
            given_s = int(text[:18]) if is_plain else None
            change[name] = given_s if given_s is not None else _time_or_none(text, option)
    for name, text in rates.items():
        if text is not None:
            option = f"--{name.removesuffix('_bytes_s')}-bandwidth"
            change[name] = None if text.lower() == "none" else bytes_of(text, option)
    if windows:
        change["windows"] = windows_of(windows)
    return change


def _time_or_none(text: str, option: str) -> int | None:
    return None if text.lower() == "none" else seconds_of(text, option)


def windows_of(texts: Sequence[str]) -> list[str]:
    """Windows as they are stored; ``none`` alone takes all away. Raises UsageError."""
    if [text.lower() for text in texts] == ["none"]:
        return []
    try:
        return [str(Window.parse(text)) for text in texts]
    except ValueError as error:
        raise UsageError(f"--window: {error}; or none") from error


def bytes_of(text: str, option: str) -> int:
    """``50MiB`` is 52428800, ``50MB`` 50000000. Raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    size = round(float(found[1]) * _SIZES[found[2].lower().removesuffix("b")]) if found else 0
    if size < 1:
        raise UsageError(f"{option} takes bytes a second as 500kB, 20MiB or 1.5GiB, or none, not {text!r}")
    return size


def seconds_of(text: str, option: str = "--for") -> int:
    """``1h30m`` is 5400. Raises UsageError."""
    found = _TIME.fullmatch(text.strip().lower())
    parts = [part for part in found.groups() if part] if found else []
    seconds = sum(int(part[:-1]) * _UNITS_S[part[-1]] for part in parts)
    if not seconds:
        raise UsageError(f"{option} takes a time as 90s, 10m, 1h30m or 2d, not {text!r}")
    return seconds


def pause_request(by: str | None, reason: str, time_limit: str | None) -> JsonObject:
    """The body of a pause. Raises UsageError."""
    for_s = None if time_limit is None else seconds_of(time_limit)
    return {"by": asker(by), "reason": reason, "for_s": for_s}


def told(by: str | None, reason: str) -> JsonObject:
    """Who asks and why, where it was said; the user's name goes with each request anyhow."""
    return {**({"by": by} if by else {}), **({"reason": reason} if reason else {})}


def change_limits(client: ApiClient, change: Mapping[str, object]) -> JsonObject:
    """Nothing to change: the limits as they are."""
    return client.change_limits(change) if change else client.limits()


def one_object(form: OutputFormat) -> None:
    if form is OutputFormat.CSV:
        raise UsageError("rebalance prints one object, csv holds rows: choose json or jsonl")
