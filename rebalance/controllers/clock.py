"""Time for timers, as something that tests replace: the wall clock, and one that nobody sets."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

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


class SteadyClock:
    """The event loop's: it goes on evenly whatever the wall clock is set to."""

    def now_ms(self) -> int:
        return round(1_000 * asyncio.get_running_loop().time())

    async def sleep_until(self, at_ms: int) -> None:
        left_s = (at_ms - self.now_ms()) / 1_000
        await asyncio.sleep(min(max(left_s, 0.0), LONGEST_SLEEP_S))


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
