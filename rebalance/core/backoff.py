"""The time that a retry waits: one value for everything that keeps a timer of its own.

A call that is simply repeated in place uses tenacity. The value is clamped by construction: it holds the pause
itself and never a power of a counter, so no number of failures makes it overflow or grow past ``most_s``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

JITTER = 0.2
"""Enough that retries which began together do not stay together."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """``first_s`` after the first failure in a row, ``growth`` times as long after each further one, at most
    ``most_s``. ``jitter`` is the part of a pause that chance may take off. ``pause_s`` is the whole pause now,
    0 while nothing has failed."""

    first_s: float
    most_s: float
    jitter: float = JITTER
    growth: float = 2.0
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError for bounds that could not be kept."""
        bounds = 0.0 < self.first_s <= self.most_s < math.inf and 0.0 <= self.pause_s <= self.most_s
        if not (bounds and 0.0 <= self.jitter <= 1.0 and 1.0 <= self.growth < math.inf):
            raise ValueError(f"no such backoff: {self}")

    @property
    def has_failed(self) -> bool:
        return self.pause_s > 0.0

    def failed(self) -> Backoff:
        """Return the backoff after one more failure in a row."""
        longer_s = self.growth * self.pause_s if self.has_failed else self.first_s
        return replace(self, pause_s=min(longer_s, self.most_s))

    def fresh(self) -> Backoff:
        """Return the backoff after a success: the next failure is a first one again."""
        return replace(self, pause_s=0.0) if self.has_failed else self

    def up_to(self, most_s: float) -> Backoff:
        """The same failures under another upper bound, not below ``first_s``."""
        most_s = max(most_s, self.first_s)
        return replace(self, most_s=most_s, pause_s=min(self.pause_s, most_s))

    def delay_s(self, chance: float) -> float:
        """Seconds until the next attempt, from ``pause_s`` down to its part without ``jitter``. ``chance`` from
        0 to 1: ``Random.random``, or 0 where nothing else retries at the same time."""
        return self.pause_s * (1.0 - self.jitter * min(max(chance, 0.0), 1.0))
