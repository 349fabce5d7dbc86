"""Work over all partitions of a zone, in parts that leave the event loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

PARTITIONS_PER_SLICE = 100
"""Some ten milliseconds, where each takes some ten microseconds to decode and to judge."""


async def in_slices(items: Sequence[T], size: int = PARTITIONS_PER_SLICE) -> AsyncIterator[Sequence[T]]:
    """``items`` in order, at most ``size`` at a time; everybody else has a turn before each part."""
    for start in range(0, len(items), size):
        await asyncio.sleep(0)
        yield items[start : start + size]
