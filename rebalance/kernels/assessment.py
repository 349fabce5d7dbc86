"""Assessment of a placement: how even it is, what survives a loss, and what moves on the way there.

Array code over whole zones, so that many candidate topologies can be compared in one job.

Counts of ranges of partitions add up, so that a cluster can count ranges side by side (VOL-084, VOL-086).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rebalance.kernels.rendezvous import Matrix

LEVELS = ("replicas", "voters", "primaries")


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of one level over the nodes: most minus least, and the standard deviation."""

    max_min: int
    stddev: float


@dataclass(frozen=True, slots=True)
class Assessment:
    """``spreads`` in the order of LEVELS. ``lost_to_a_node`` and ``lost_to_a_domain``: in the worst case, how
    many partitions lose the majority of their voters with one node, or with one failure domain (None: there are
    none). ``moved`` replicas are on nodes that held no copy of their partition before; ``handed_over``
    partitions keep fewer than a majority of their voters."""

    spreads: tuple[Spread, Spread, Spread]
    lost_to_a_node: int
    lost_to_a_domain: int | None
    moved: int
    handed_over: int


def assess(
    nodes: Sequence[str],
    matrix: Matrix,
    voters: int,
    domains: Sequence[str] = (),
    before: tuple[Sequence[str], Matrix, int] | None = None,
) -> Assessment:
    """``matrix`` int32 [P, R] of indexes into ``nodes``, the first ``voters`` columns vote; ``before`` is
    another such placement of the same partitions, as (nodes, matrix, voters). None: everything moves in."""
    counts = level_counts(len(nodes), matrix, voters)
    spreads = [spread_of(count) for count in counts]
    votes = matrix[:, :voters]
    tolerated = votes.shape[1] - (votes.shape[1] // 2 + 1)
    by_domain = None
    if domains:
        numbers = {name: at for at, name in enumerate(dict.fromkeys(domains))}
        of = np.array([numbers[name] for name in domains], dtype=np.int64)
        by_domain = _worst_loss(of[votes], len(numbers), tolerated)
    moved, handed_over = int(matrix.size), 0
    if before is not None:
        old = renumbered(before[0], before[1], nodes)
        moved = int(np.count_nonzero(~held(matrix, old)))
        staying = held(old[:, : before[2]], votes).sum(axis=1)
        handed_over = int(np.count_nonzero(staying < before[2] // 2 + 1))
    return Assessment(
        (spreads[0], spreads[1], spreads[2]),
        _worst_loss(votes.astype(np.int64), len(nodes), tolerated),
        by_domain,
        moved,
        handed_over,
    )


def spread_of(count: npt.NDArray[np.int64]) -> Spread:
    """Return the spread of what each node has; all zero where there are no nodes."""
    return Spread(int(np.ptp(count)), float(count.std())) if count.size else Spread(0, 0.0)


def level_counts(nodes: int, matrix: Matrix, voters: int) -> npt.NDArray[np.int64]:
    """Replicas, voters and primaries of each node: int64 [3, N]."""
    widths = (matrix.shape[1], voters, 1)
    return np.stack([np.bincount(matrix[:, :width].ravel(), minlength=nodes) for width in widths])


def renumbered(names: Sequence[str], matrix: Matrix, nodes: Sequence[str]) -> Matrix:
    """``matrix`` of indexes into ``names`` as indexes into ``nodes``, -1 for who is not among them."""
    number = {name: at for at, name in enumerate(nodes)}
    numbers = np.array([number.get(name, -1) for name in names], dtype=np.int32)
    return numbers[matrix]


def held(cells: Matrix, by: Matrix) -> npt.NDArray[np.bool_]:
    """Return which of ``cells`` [P, A] stand somewhere in the same row of ``by`` [P, B]; -1 stands nowhere."""
    is_held = np.zeros(cells.shape, dtype=np.bool_)
    for column in range(by.shape[1]):
        is_held |= cells == by[:, column : column + 1]
    return is_held & (cells >= 0)


def _worst_loss(groups: npt.NDArray[np.int64], count: int, tolerated: int) -> int:
    """Partitions without a majority when one of ``count`` groups is lost, the worst of all; ``groups`` [P, V]
    is where each voter stands."""
    rows = np.arange(len(groups))[:, None]
    votes = np.zeros((len(groups), max(count, 1)), dtype=np.int16)
    np.add.at(votes, (rows, groups), 1)
    return int((votes > tolerated).sum(axis=0).max(initial=0))


Counts = npt.NDArray[np.int64]


def counted(nodes: int, matrix: Matrix, voters: int, held: Mapping[str, Counts]) -> dict[str, Counts]:
    """Count what each of ``nodes`` holds of ``matrix`` int32 [P, R]: name -> int64 [N].

    ``held``: "keys", say -> int64 [P], what one copy of each partition holds. It is counted over all copies,
    and as "primary_keys" over those of primaries.
    """
    counts = dict(zip(LEVELS, level_counts(nodes, matrix, voters), strict=True))
    for name, weight in held.items():
        for label, width in ((name, matrix.shape[1]), (f"primary_{name}", min(1, matrix.shape[1]))):
            sums = np.zeros(nodes, dtype=np.int64)
            np.add.at(sums, matrix[:, :width].ravel(), np.repeat(weight, width))
            counts[label] = sums
    return counts
