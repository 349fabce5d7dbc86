"""Clocks that tests replace: the wall clock, a steady one that nobody sets, and zones that are due at a time.

``DueTimes`` sleeps once for all of its zones, and not at all while none is due at any time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from catalog.core.zone import ZoneId

LONGEST_SLEEP_S = 30.0
"""A clock that is set forward is noticed by then."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, or of a clock that only goes on."""
        ...

    async def sleep_until(self, at_ms: int) -> None:
        """Returns at ``at_ms`` or earlier; the caller looks at the clock again."""
        ...


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, at_ms: int) -> None:
        left_s = (at_ms - self.now_ms()) / 1_000
        await asyncio.sleep(min(max(left_s, 0.0), LONGEST_SLEEP_S))


class SteadyClock(WallClock):
    """The event loop's: it goes on evenly whatever the wall clock is set to."""

    def now_ms(self) -> int:
        return round(1_000 * asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class Clocks:
    """``wall`` names times to people and other processes; ``steady`` measures them."""

    wall: Clock = field(default_factory=WallClock)
    steady: Clock = field(default_factory=SteadyClock)


async def sleep_unless(clock: Clock, until_ms: int | None, event: asyncio.Event) -> None:
    """Sleep until ``event`` is set, at the latest until ``until_ms``; it may return early."""
    waiting: list[asyncio.Future[object]] = [asyncio.ensure_future(event.wait())]
    if until_ms is not None:
        waiting.append(asyncio.ensure_future(clock.sleep_until(until_ms)))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


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
