"""Events of a run, as lines for people and as one digest for the comparison of two runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass, field

LINES_MAX = 100_000


@dataclass(slots=True)
class Trace:
    """``steps`` counts what invariants are checked after: revisions of the store and steps of groups."""

    steps: int = 0
    lines: list[tuple[float, str]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, kind: str, text: str) -> None:
        """Note an event; ``kind`` is counted."""
        self.events[kind] += 1
        now = asyncio.get_running_loop().time()
        if len(self.lines) < LINES_MAX:
            self.lines.append((now, f"{kind}: {text}" if text else kind))
        self._digest.update(f"{now:.6f} {kind} {text}\n".encode())

    def step(self, content: bytes) -> None:
        self.steps += 1
        self._digest.update(content)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]
