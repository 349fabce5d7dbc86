"""The copies that a target makes and ends, from where each partition is.

A partition that is where the target before wanted it is told by the two targets, all of them at once; others,
which an earlier operation had not brought there, by where they *stand*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rebalance.controllers.targets import matrix_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.copy_sizes import Standing
from rebalance.core.assignments.target import StoredTarget, available_target
from rebalance.kernels.assessment import renumbered
from rebalance.kernels.rendezvous import Matrix
from rebalance.kernels.transfers import Sizes, Transfers, copies


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """``matrix`` int32 [P, R], indexes into ``nodes``; the first ``voters`` columns vote. ``gone``: see
    ``available_target``."""

    nodes: tuple[str, ...]
    matrix: Matrix
    voters: int
    gone: Collection[str] = ()

    @classmethod
    def of(cls, stored: StoredTarget) -> PlacedRows:
        """Raises ValueError when chunks are missing."""
        pointer = stored.pointer
        return cls(pointer.nodes, matrix_of(stored), max(1, pointer.consensus), pointer.gone)

    def asked_of(self, number: int, stands: Assignments) -> Assignments:
        names = [self.nodes[index] for index in self.matrix[number].tolist()]
        target = Assignments(tuple(names[: self.voters]), tuple(names[self.voters :]))
        return available_target(target, stands, self.gone)


def standing_of(before: StoredTarget, stable: Mapping[int, Assignments]) -> Standing:
    """Return what of ``stable`` is not as ``before`` wants it, by the numbers of partitions. Raises
    ValueError."""
    pairs: dict[tuple[bytes, Assignments], bool] = {}
    standing = []
    for number, row in enumerate(before.rows()):
        stands = stable.get(number)
        if stands is None:
            continue
        differs = pairs.get((row, stands))
        if differs is None:
            wanted = available_target(before.assignments_of(row), stands, before.pointer.gone)
            differs = pairs[row, stands] = wanted != stands
        if differs:
            standing.append((number, stands.at_rest()))
    return tuple(standing)


def moved_copies(
    before: PlacedRows | None, after: PlacedRows, standing: Standing, sizes: Sizes
) -> tuple[tuple[str, ...], Transfers]:
    """The nodes that are numbered, and the copies in the order of partitions. ``before`` None: of a new zone.
    ``sizes`` int64 [P]. Raises ValueError where the numbers of partitions differ."""
    was = before or PlacedRows((), np.zeros((len(after.matrix), 0), dtype=np.int32), 1)
    named = (name for _, stands in standing for name in stands.copies)
    names = tuple(dict.fromkeys((*was.nodes, *after.nodes, *named)))
    old, new = renumbered(was.nodes, was.matrix, names), renumbered(after.nodes, after.matrix, names)
    if len(old) != len(new):
        raise ValueError(f"{len(old)} partitions before and {len(new)} after")
    rests = np.ones(len(new), dtype=np.bool_)
    rests[[number for number, _ in standing if number < len(new)]] = False
    numbers = np.flatnonzero(rests)
    moved = copies(old[numbers], new[numbers], (was.voters, after.voters), sizes[numbers])
    parts = [_numbered(moved, numbers), *_of_standing(after, standing, names, sizes)]
    partition = np.concatenate([part.partition for part in parts])
    order = np.argsort(partition, kind="stable")
    donor = np.concatenate([part.donor for part in parts])
    stealer = np.concatenate([part.stealer for part in parts])
    size = np.concatenate([part.size for part in parts])
    return names, Transfers(partition[order], donor[order], stealer[order], size[order])


def _of_standing(
    after: PlacedRows, standing: Standing, names: tuple[str, ...], sizes: Sizes
) -> Iterator[Transfers]:
    """Yield the transfers of one shape at once: as many voters and learners before and after."""
    index = {name: number for number, name in enumerate(names)}
    shapes: dict[tuple[int, ...], list[tuple[int, list[int], list[int]]]] = {}
    for number, stands in standing:
        if number >= len(after.matrix):
            continue
        asked = after.asked_of(number, stands)
        shape = len(stands.peers), len(stands.learners), len(asked.peers), len(asked.learners)
        rows = [index[name] for name in stands.copies], [index[name] for name in asked.copies]
        shapes.setdefault(shape, []).append((number, *rows))
    for (voters, _, votes, _), group in shapes.items():
        numbers = np.array([number for number, _, _ in group], dtype=np.int64)
        old = np.array([row for _, row, _ in group], dtype=np.int32)
        new = np.array([row for _, _, row in group], dtype=np.int32)
        yield _numbered(copies(old, new, (voters, votes), sizes[numbers]), numbers)


def _numbered(moved: Transfers, numbers: npt.NDArray[np.int64]) -> Transfers:
    return replace(moved, partition=numbers[moved.partition].astype(np.int32))
