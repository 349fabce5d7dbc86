"""A keyed work queue: de-duplicated, level-triggered, backing off per key."""

from __future__ import annotations

import asyncio

from catalog.core.zone import ZoneId

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0


class WorkQueue:
    """Keys that need attention. A key that is added while it is worked on comes up again afterwards."""

    def __init__(self) -> None:
        self._dirty: set[ZoneId] = set()
        self._failures: dict[ZoneId, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: ZoneId) -> None:
        self._dirty.add(key)
        self._wake.set()

    def succeeded(self, key: ZoneId) -> None:
        self._failures.pop(key, None)

    def failed(self, key: ZoneId) -> float:
        """The key comes up again after a delay that doubles with each failure; returns it, in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(BACKOFF_FIRST_S * 2.0**failures, BACKOFF_MAX_S)
        asyncio.get_running_loop().call_later(delay_s, self.add, key)
        return delay_s

    async def take(self) -> tuple[ZoneId, ...]:
        """Waits for work and takes all of it: one batch, in key order."""
        await self._wake.wait()
        self._wake.clear()
        batch, self._dirty = tuple(sorted(self._dirty)), set()
        return batch
