"""Partition maps as arrays: the merge of single maps into a full map, and what is concluded from it.

A full map lists the copies partition by partition, and by node within a partition. Merging a million partitions
of three copies on a thousand nodes sorts three million numbers once; beside its input and result it needs about
24 bytes a copy. Source: PME-017, PME-088, PME-090, PME-094, PME-098.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

MOVING, OWNING, RENTING, EVICTED, LOST = range(5)
"""State codes, as they are stored."""
STATE_NAMES = ("MOVING", "OWNING", "RENTING", "EVICTED", "LOST")

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
States = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SingleArrays:
    """The copies of one node: arrays of one length. ``partitions`` int32, each once, in any order; ``states``
    uint8 codes; ``counters``, ``sizes`` and ``terms`` int64; ``leads`` bool."""

    partitions: Int32
    states: States
    counters: Int64
    sizes: Int64
    terms: Int64
    leads: Flags

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class FullArrays:
    """All copies of P partitions on ``names``: C copies.

    ``starts`` int64 [P + 1]: the copies of partition p are ``starts[p]`` to ``starts[p + 1]``, by node.
    ``nodes`` int32 [C] are indexes into ``names``; ``states`` uint8, ``counters`` and ``sizes`` int64 [C].
    ``leaders`` int32 [P]: the node that leads, -1 when nobody says so; ``terms`` int64 [P]: in which term.
    """

    names: tuple[str, ...]
    starts: Int64
    nodes: Int32
    states: States
    counters: Int64
    sizes: Int64
    leaders: Int32
    terms: Int64

    @property
    def partitions(self) -> int:
        return len(self.starts) - 1

    @property
    def copies(self) -> int:
        return len(self.nodes)

    @property
    def owners_of_copies(self) -> Int64:
        """int64 [C]: the partition of each copy."""
        return np.repeat(np.arange(self.partitions, dtype=np.int64), np.diff(self.starts))


@dataclass(frozen=True, slots=True)
class Conclusions:
    """Conclusions by partition: ``actual`` int64 [P] the highest counter of an owner, 0 without one;
    ``unowned`` bool [P]. By copy: ``outdated`` bool [C], owners below the actual counter. ``differing`` bool
    [P]: owners that do not agree in counter or size."""

    actual: Int64
    unowned: Flags
    outdated: Flags
    differing: Flags


def merge(names: Sequence[str], singles: Sequence[SingleArrays], partitions: int) -> FullArrays:
    """The full map of ``partitions`` partitions; ``singles`` in the order of ``names``.

    Two nodes that both say that they lead: the one in the higher term is believed. Raises ValueError for a
    partition outside of the zone or named twice by one node, saying which and by whom.
    """
    lengths = np.fromiter(map(len, singles), dtype=np.int64, count=len(singles))
    numbers = _joined([single.partitions for single in singles], np.int32)
    nodes = np.repeat(np.arange(len(singles), dtype=np.int32), lengths)
    outside = (numbers < 0) | (numbers >= partitions)
    if outside.any():
        first = int(np.argmax(outside))
        raise ValueError(
            f"node {names[nodes[first]]} reports partition {numbers[first]}; the zone has 0 to {partitions - 1}"
        )
    order = np.argsort(numbers, kind="stable")
    numbers, nodes = numbers[order], nodes[order]
    twice = (numbers[1:] == numbers[:-1]) & (nodes[1:] == nodes[:-1])
    if twice.any():
        first = int(np.argmax(twice))
        raise ValueError(f"node {names[nodes[first]]} reports partition {numbers[first]} twice")
    starts = np.zeros(partitions + 1, dtype=np.int64)
    np.cumsum(np.bincount(numbers, minlength=partitions), out=starts[1:])
    terms = _joined([single.terms for single in singles], np.int64)[order]
    leads = _joined([single.leads for single in singles], np.bool_)[order]
    leaders, leading_terms = _leaders(partitions, numbers, nodes, terms, leads)
    return FullArrays(
        tuple(names),
        starts,
        nodes,
        _joined([single.states for single in singles], np.uint8)[order],
        _joined([single.counters for single in singles], np.int64)[order],
        _joined([single.sizes for single in singles], np.int64)[order],
        leaders,
        leading_terms,
    )


def conclude(full: FullArrays) -> Conclusions:
    """Compare the owners of each partition; one pass over the copies for each answer."""
    owner = full.states == OWNING
    numbers = full.owners_of_copies[owner]
    counters, sizes = full.counters[owner], full.sizes[owner]
    owners = np.bincount(numbers, minlength=full.partitions)
    actual = np.zeros(full.partitions, dtype=np.int64)
    differing = np.zeros(full.partitions, dtype=np.bool_)
    outdated = np.zeros(full.copies, dtype=np.bool_)
    owned = owners > 0
    if owned.any():
        begins = np.concatenate(([0], np.cumsum(owners[owned])[:-1]))
        actual[owned] = np.maximum.reduceat(counters, begins)
        for values in (counters, sizes):
            low, high = np.minimum.reduceat(values, begins), np.maximum.reduceat(values, begins)
            differing[owned] |= low != high
        outdated[owner] = counters < actual[numbers]
    return Conclusions(actual, ~owned, outdated, differing)


def assigned(full: FullArrays, conclusions: Conclusions) -> FullArrays:
    """``full`` with outdated owners as MOVING copies, which count as having the actual counter (PME-090,
    PME-101)."""
    states = full.states.copy()
    states[conclusions.outdated] = MOVING
    counters = full.counters.copy()
    numbers = full.owners_of_copies
    moving = states == MOVING
    counters[moving] = conclusions.actual[numbers[moving]]
    return replace(full, states=states, counters=counters)


def _leaders(partitions: int, numbers: Int32, nodes: Int32, terms: Int64, leads: Flags) -> tuple[Int32, Int64]:
    leaders = np.full(partitions, -1, dtype=np.int32)
    leading_terms = np.zeros(partitions, dtype=np.int64)
    which = np.flatnonzero(leads)
    # Written in order of terms, so that the highest one stays.
    which = which[np.argsort(terms[which], kind="stable")]
    leaders[numbers[which]] = nodes[which]
    leading_terms[numbers[which]] = terms[which]
    return leaders, leading_terms


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype=dtype)
