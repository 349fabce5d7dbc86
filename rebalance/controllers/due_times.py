"""Keys that are due at a time: one sleep for all of them, none when there is nothing to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock, sleep_unless


class DueTimes:
    """The next due time of each zone. A million zones cost one timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_ms: dict[ZoneId, int] = {}
        self._changed = asyncio.Event()

    def set(self, zone_id: ZoneId, due_ms: int | None) -> None:
        """Replaces the zone's due time; None: it waits for nothing."""
        if self._due_ms.get(zone_id) == due_ms:
            return
        if due_ms is None:
            self._due_ms.pop(zone_id, None)
        else:
            self._due_ms[zone_id] = due_ms
        self._changed.set()

    def clear(self) -> None:
        self._due_ms.clear()
        self._changed.set()

    def due(self, at_ms: int) -> tuple[ZoneId, ...]:
        """Zones that are due at ``at_ms``, in due order."""
        due = sorted((due_ms, zone_id) for zone_id, due_ms in self._due_ms.items() if due_ms <= at_ms)
        return tuple(zone_id for _, zone_id in due)

    async def run(self, act: Callable[[ZoneId], Awaitable[None]]) -> None:
        """Calls ``act`` once for each due time, until cancelled. It sets the next one, or another call does."""
        while True:
            self._changed.clear()
            for zone_id in self.due(self._clock.now_ms()):
                due_ms = self._due_ms.pop(zone_id)
                try:
                    await act(zone_id)
                except Exception:
                    # Still due, for the next start of this.
                    self._due_ms.setdefault(zone_id, due_ms)
                    raise
            await sleep_unless(self._clock, min(self._due_ms.values(), default=None), self._changed)
