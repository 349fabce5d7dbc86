"""What clients did and were told, and whether that can be: no acknowledged write is lost or hidden.

A read must see every write of its key that was acknowledged before the read began: the version itself, or one
that has seen it. Source: VOL-005, VOL-007.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from rebalance.stealing.core.vector_clock import VectorClock, Versioned

Row = tuple[str, str]
"""A store, and a key in it."""


class HistoryError(AssertionError):
    """Names the key, and what a client should have been told."""


@dataclass(frozen=True, slots=True)
class Request:
    """Times in virtual seconds."""

    kind: str
    began_s: float
    ended_s: float

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.began_s


@dataclass(slots=True)
class History:
    """``acknowledged``: by key the writes that somebody was told of, without those that later ones have seen.
    ``failed``: requests that were given up."""

    acknowledged: defaultdict[Row, tuple[Versioned, ...]] = field(default_factory=lambda: defaultdict(tuple))
    requests: list[Request] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def written(self, row: Row, version: Versioned) -> None:
        others = (each for each in self.acknowledged[row] if not version.clock.covers(each.clock))
        self.acknowledged[row] = (*others, version)

    def check_read(self, row: Row, promised: Iterable[Versioned], found: Iterable[Versioned]) -> None:
        """``promised``: acknowledged when the read began. Raises HistoryError."""
        clocks = {each.clock: each.value for each in found}
        for each in promised:
            if not any(clock.covers(each.clock) for clock in clocks):
                raise HistoryError(
                    f"{row}: {each.value!r} of {each.clock.counts} was acknowledged, and a read found "
                    f"{_counts(clocks)}"
                )
            if clocks.get(each.clock, each.value) != each.value:
                raise HistoryError(f"{row}: {each.clock.counts} is {each.value!r} and {clocks[each.clock]!r}")

    def latencies_s(self, from_s: float, to_s: float) -> list[float]:
        """Of requests that ended in that time, ascending."""
        return sorted(each.latency_s for each in self.requests if from_s <= each.ended_s < to_s)


def _counts(clocks: Iterable[VectorClock]) -> str:
    return ", ".join(str(each.counts) for each in clocks) or "nothing"
