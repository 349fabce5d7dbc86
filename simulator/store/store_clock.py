"""Virtual time for store servers: one queue of what happens when, and a clock a node that drifts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass


class StoreTime:
    """``now`` is in milliseconds. Calls of one instant happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + max(0, delay_ms), self._count, call))

    def run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now, _, call = heapq.heappop(self._queue)
            call()
        self.now = end_ms


@dataclass(slots=True)
class NodeClock:
    """``rate``: of its time to true time; ``ahead_ms``: what it shows at zero. It may jump ahead."""

    time: StoreTime
    rate: float = 1.0
    ahead_ms: int = 0

    @property
    def boot_ms(self) -> int:
        return self.ahead_ms + int(self.time.now * self.rate)
