"""Transfers from one placement to another: the copies that each node gives to each, per partition and in
total.

In a partition the n-th node that loses its copy is the *donor* of the n-th that gains one, the *stealer*. A
copy that is added has no donor (NOBODY: it is copied from within its group), one that ends has no stealer. A
copy whose role changes (a voter learns, or a learner votes) is made anew where it is: ``copies`` has it with
its node as donor and stealer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rebalance.kernels.assessment import held
from rebalance.kernels.rendezvous import Matrix

NOBODY = -1
Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transfers:
    """T replicas that change their place, in partition order: int32 [T] each, ``size`` int64 [T] in bytes, 0
    for a copy that only ends. ``donor`` and ``stealer`` are numbers of nodes or NOBODY."""

    partition: npt.NDArray[np.int32]
    donor: npt.NDArray[np.int32]
    stealer: npt.NDArray[np.int32]
    size: Sizes

    @property
    def unknown(self) -> int:
        """Count the copies of partitions of no known size."""
        return int(np.count_nonzero((self.size == 0) & (self.stealer != NOBODY)))

    def only(self, chosen: npt.NDArray[np.bool_]) -> Transfers:
        """``chosen``: bool [T]."""
        return Transfers(self.partition[chosen], self.donor[chosen], self.stealer[chosen], self.size[chosen])


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals by donor, then stealer: node numbers int32 [K], replicas and bytes int64 [K]."""

    donor: npt.NDArray[np.int32]
    stealer: npt.NDArray[np.int32]
    replicas: npt.NDArray[np.int64]
    size: Sizes


def transfers(before: Matrix, after: Matrix, sizes: Sizes | None = None, first: int = 0) -> Transfers:
    """``before`` and ``after`` int32 [P, R] are numbers in one list of nodes, none twice in a row; the number
    of columns may differ. ``sizes`` int64 [P]: bytes of a copy of each partition; None: not known, 0. ``first``
    is the number of the first row's partition. Raises ValueError for different numbers of partitions."""
    if len(before) != len(after):
        raise ValueError(f"{len(before)} partitions before and {len(after)} after")
    width = max(before.shape[1], after.shape[1], 1)
    lost, losers = _slots(before, ~held(before, after), width)
    gained, gainers = _slots(after, ~held(after, before), width)
    slots = np.union1d(lost, gained)
    donor, stealer = (np.full(len(slots), NOBODY, dtype=np.int32) for _ in range(2))
    donor[np.searchsorted(slots, lost)] = losers
    stealer[np.searchsorted(slots, gained)] = gainers
    rows = slots // width
    size = np.zeros(len(slots), dtype=np.int64)
    if sizes is not None:
        size = np.where(stealer == NOBODY, 0, np.asarray(sizes, dtype=np.int64)[rows])
    return Transfers((rows + first).astype(np.int32), donor, stealer, size)


def copies(before: Matrix, after: Matrix, voters: tuple[int, int], sizes: Sizes | None = None) -> Transfers:
    """Return the transfers, as ``transfers``, with the copies that change their role; ``voters``: how many
    columns vote, before and after. It is what a change is estimated by, and the same wherever it is."""
    moved = transfers(before, after, sizes)
    cut = [min(count, matrix.shape[1]) for count, matrix in zip(voters, (before, after), strict=True)]
    # Voters that are learners then, and learners that are voters then.
    halves = (
        (before[:, : cut[0]], after[:, cut[1] :]),
        (before[:, cut[0] :], after[:, : cut[1]]),
    )
    rows, nodes = (np.concatenate(pairs) for pairs in zip(*(_common(*half) for half in halves), strict=True))
    size = np.zeros(len(rows), dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)[rows]
    partition = np.concatenate((moved.partition, rows.astype(np.int32)))
    order = np.argsort(partition, kind="stable")
    donor, stealer = (np.concatenate((part, nodes))[order] for part in (moved.donor, moved.stealer))
    return Transfers(partition[order], donor, stealer, np.concatenate((moved.size, size))[order])


def _common(cells: Matrix, others: Matrix) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Rows and nodes of ``cells`` that stand in the same row of ``others``."""
    rows, columns = np.nonzero(held(cells, others))
    return rows, cells[rows, columns]


def totals(moved: Transfers) -> Totals:
    """Replicas and bytes of each pair of donor and stealer."""
    pairs = np.stack([moved.donor, moved.stealer], axis=1)
    distinct, where = np.unique(pairs, axis=0, return_inverse=True)
    replicas = np.bincount(where, minlength=len(distinct)).astype(np.int64)
    size = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(size, where, moved.size)
    return Totals(distinct[:, 0], distinct[:, 1], replicas, size)


def named_twice(matrix: Matrix) -> int | None:
    """The first row of ``matrix`` int32 [P, R] that has a number twice; None when there is none."""
    ordered = np.sort(matrix, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return int(np.argmax(twice)) if twice.any() else None


def _slots(
    matrix: Matrix, chosen: npt.NDArray[np.bool_], width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Chosen cells as row * width + rank within the row, ascending, and the node of each. Ranks go by number,
    so that the pairs do not depend on the order of preference."""
    rows, columns = np.nonzero(chosen)
    nodes = matrix[rows, columns]
    order = np.lexsort((nodes, rows))
    rows, nodes = rows[order], nodes[order]
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
    return rows * width + ranks, nodes
