"""Time by which an agent judges others: it passes only while the agent hears the metastore.

A node whose lease is gone may have been cut off from the metastore together with the agent that looks, and a
process that was frozen has seen nothing at all. So what others have done is measured by renewals of the agent's
own lease that succeeded one soon after the other.
"""

from __future__ import annotations


class HeardTime:
    """A monotonic clock in seconds. Between two renewals that are further apart than ``silence_s`` it stands
    still."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._last_s: float | None = None
        self.now_s = 0.0

    def note(self, at_s: float) -> None:
        """The metastore has answered at ``at_s`` of a clock that never goes back."""
        if self._last_s is not None and at_s - self._last_s <= self._silence_s:
            self.now_s += at_s - self._last_s
        self._last_s = at_s
