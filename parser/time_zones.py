"""Zones as literals and drivers write them."""

from __future__ import annotations

import re

_OFFSET = re.compile(r"([+-])(\d\d?)(?::?(\d\d))?")


def zone_of(text: str) -> str:
    """A zone as it is shown: ``Z`` is UTC, ``UTC+05:30`` an offset."""
    return "UTC" if text == "Z" else re.sub(r"^(?:UTC|GMT|UT)(?=[+-]\d)", "", text)


def offset_minutes(zone: str) -> int | None:
    """Return the minutes of ``+05:30``; None for a name."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    return (-1 if match[1] == "-" else 1) * (int(match[2]) * 60 + int(match[3] or 0))
