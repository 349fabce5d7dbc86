"""Time until which a server may serve: its own heartbeats, by its own clock.

A heartbeat counts from when it was *sent*: the controller sees it later than that, and fails the server a TTL
after it saw it. So a server that looks at the clock last, right before an answer goes out, has stopped before
anybody else leads.
"""

from __future__ import annotations

from rebalance.store.core.store_limits import StoreLimits

NEVER_MS = -1


class ServerLife:
    """``until_ms``: serve before this, not at it. It only grows."""

    def __init__(self, limits: StoreLimits) -> None:
        self.until_ms = NEVER_MS
        self._limits = limits
        self._sent: dict[int, int] = {}
        self._ticket = 0
        self._due_ms = NEVER_MS

    def due(self, now_ms: int) -> int | None:
        """The ticket of a heartbeat to be sent now; None while the last one is young enough."""
        if now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._limits.beat_ms
        self._ticket += 1
        self._sent[self._ticket] = now_ms
        return self._ticket

    def committed(self, ticket: int) -> None:
        """Note a heartbeat that was committed; those that were sent earlier do not matter any more."""
        sent_ms = self._sent.get(ticket)
        if sent_ms is None:
            return
        self._sent = {number: at for number, at in self._sent.items() if number > ticket}
        self.until_ms = max(self.until_ms, sent_ms + self._limits.serve_ms)

    def serves(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    def is_over(self, now_ms: int) -> bool:
        """Check that the server has served and missed its time: it must end, as others may lead."""
        return self.until_ms != NEVER_MS and now_ms >= self.until_ms
