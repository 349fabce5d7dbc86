"""Since when the metastore is silent, by the questions that this server puts to it."""

from __future__ import annotations

SETTLE_S = 3.0
"""Leases end, and store servers leave and come back, only once the metastore answers again: what it says is
taken as so after that long."""
LEASE_S = 4.0
"""Leases are of five seconds and more by default: a silence that was shorter ends none."""


class MetastoreHearing:
    """Times in seconds of one monotonic clock. ``begun_s``: from then on questions were put."""

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s
        self._heard_s: float | None = None
        self._silent_since_s: float | None = None
        self._back_s: float | None = None

    def heard(self, asked_s: float, now_s: float) -> None:
        """A question of ``asked_s`` is answered now."""
        self._heard_s = max(self._heard_s or asked_s, asked_s)
        if self._silent_since_s is None or self._back_s is not None:
            return
        if now_s - self._silent_since_s < LEASE_S:
            self._silent_since_s = None
        else:
            self._back_s = now_s

    def missed(self) -> None:
        """A question is not answered."""
        if self._silent_since_s is None:
            self._silent_since_s = self._heard_s or self._begun_s
        self._back_s = None

    def is_fresh(self, now_s: float, age_s: float) -> bool:
        """It has answered a question that is not older than ``age_s``."""
        is_young = self._heard_s is not None and now_s - self._heard_s <= age_s
        return is_young and self._silent_since_s is None

    def unknown_since_s(self, now_s: float) -> float | None:
        """From when on nobody can tell whether what was seen last is still so; None: it is known."""
        if self._back_s is not None and now_s - self._back_s >= SETTLE_S:
            self._silent_since_s = self._back_s = None
        return self._silent_since_s
