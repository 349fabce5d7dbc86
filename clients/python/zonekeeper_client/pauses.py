"""Pauses between attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pause:
    """``first_s`` at first, twice as long each time, at most ``most_s``."""

    first_s: float
    most_s: float
    whole_s: float = 0.0

    def longer(self) -> Pause:
        return replace(self, whole_s=min(2 * self.whole_s, self.most_s) if self.whole_s else self.first_s)

    @property
    def drawn_s(self) -> float:
        """Half of it to all of it, so that clients which failed together do not come back together."""
        return self.whole_s * random.uniform(0.5, 1.0)
