"""Count of what may begin under limits, for the feed: over all that moves, and so as seldom as it takes
long."""

from __future__ import annotations

import asyncio
import time

from app.views.wait_causes import WaitCauses
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror

RECOUNT_S = 5.0
"""Seconds at least between readings of what waits for limits: other partitions' moves change what it waits
for."""
PACE = 15
"""Counting, and reading what waits, is made so many times more seldom than it takes."""


class Recount:
    """``causes`` are those of the last count; None: no limits hold."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self.causes: WaitCauses | None = None
        self._mirror = mirror
        self._keyspace = keyspace
        self._limits: bytes | None = None
        self._revision = 0
        self._counted_at = 0.0
        self._spent_s = 0.0

    @property
    def is_due(self) -> bool:
        """Check that there is something to count, and it is time to."""
        value = self._mirror.value(self._keyspace.limits)
        if value != self._limits:
            return True
        if value is None or self._revision == self._mirror.revision:
            return False
        return time.monotonic() - self._counted_at >= max(RECOUNT_S, PACE * self._spent_s)

    def spent(self, seconds: float) -> None:
        """Note the seconds spent on reading what waits."""
        self._spent_s += seconds

    async def count(self) -> None:
        """Anew; leaves the loop free."""
        self._limits = self._mirror.value(self._keyspace.limits)
        self._revision = self._mirror.revision
        begun = time.monotonic()
        if Limits.of(self._mirror.get(self._keyspace.limits)).holds(now_ms()):
            causes = WaitCauses(self._mirror.copy(), self._keyspace, now_ms)
            await asyncio.to_thread(causes.rooms)
            self.causes = causes
        else:
            self.causes = None
        self._counted_at = time.monotonic()
        self._spent_s = self._counted_at - begun


def now_ms() -> int:
    return time.time_ns() // 1_000_000
