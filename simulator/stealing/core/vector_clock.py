"""Versions of a value as vector clocks: which write has seen which, without a common counter.

A store keeps every version that no other one has seen (siblings); a reader gets them all. Source: VOL-071..073.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorClock:
    """``counts``: (node, writes that it led), by node, none of them 0."""

    counts: tuple[tuple[int, int], ...] = ()

    def incremented(self, node: int) -> VectorClock:
        """The clock of a write that has seen this one and is led by ``node``."""
        counts = dict(self.counts)
        counts[node] = counts.get(node, 0) + 1
        return VectorClock(tuple(sorted(counts.items())))

    def covers(self, other: VectorClock) -> bool:
        """True if it has seen everything that the other one has; a clock covers itself."""
        counts = dict(self.counts)
        return all(counts.get(node, 0) >= count for node, count in other.counts)


@dataclass(frozen=True, slots=True)
class Versioned:
    clock: VectorClock
    value: str


class ObsoleteVersionError(Exception):
    """The store has seen this version, or one that has seen it."""


def merged(versions: Iterable[Versioned]) -> VectorClock:
    """The least clock that has seen them all."""
    counts: dict[int, int] = {}
    for version in versions:
        for node, count in version.clock.counts:
            counts[node] = max(count, counts.get(node, 0))
    return VectorClock(tuple(sorted(counts.items())))


def put_version(held: tuple[Versioned, ...], new: Versioned) -> tuple[Versioned, ...]:
    """The versions after ``new`` was put: those that it has seen go, siblings stay.

    The same version again changes nothing. Raises ObsoleteVersionError when a held version covers it.
    """
    if new in held:
        return held
    for version in held:
        if version.clock.covers(new.clock):
            raise ObsoleteVersionError(f"{new.clock.counts} is not newer than {version.clock.counts}")
    return (*(version for version in held if not new.clock.covers(version.clock)), new)


def put_all(held: tuple[Versioned, ...], taken: Iterable[Versioned]) -> tuple[Versioned, ...]:
    """Put another node's versions here; obsolete ones are ignored (VOL-072)."""
    for version in taken:
        try:
            held = put_version(held, version)
        except ObsoleteVersionError:
            continue
    return held
