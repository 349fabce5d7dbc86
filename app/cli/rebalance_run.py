"""What ``zonectl rebalance`` does once its options are read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.cli.client import ApiClient
from app.cli.exits import UsageError
from app.cli.options import OutputFormat, asker
from app.client.problem import JsonObject

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_TIME = re.compile(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?")


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
    caps: Mapping[str, str | None], one_operation: bool | None, operation_time: str | None
) -> JsonObject:
    """The body of a change: what is given, and nothing else. Raises UsageError."""
    change: JsonObject = {name: cap_of(name, text) for name, text in caps.items() if text is not None}
    if one_operation is not None:
        change["one_operation"] = one_operation
    if operation_time is not None:
        is_none = operation_time.lower() == "none"
        change["operation_s"] = None if is_none else seconds_of(operation_time, "--operation-time")
    return change


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
