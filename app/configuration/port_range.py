"""Ranges of ports as people write them."""

from __future__ import annotations

import re


def port_range(text: str, whose: str, example: str) -> range:
    """Of FIRST-LAST. Raises ValueError, saying what would be accepted."""
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None:
        raise ValueError(f"give {whose} ports as FIRST-LAST, for example {example}")
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first < last <= 65535:
        raise ValueError(f"ports {first}-{last}: FIRST is below LAST, both from 1024 to 65535")
    return range(first, last + 1)
