"""Which partitions two placements of one zone place differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rebalance.kernels.assessment import renumbered
from rebalance.kernels.rendezvous import Matrix


def changed_rows(
    before: tuple[Sequence[str], Matrix, int], after: tuple[Sequence[str], Matrix, int]
) -> npt.NDArray[np.bool_]:
    """bool [P]: the sets of voters or of learners differ; their order decides nothing.

    Each placement is (nodes, int32 [P, R] of indexes into them, columns that vote). Other numbers of columns or
    voters change every row. Raises ValueError for different numbers of partitions.
    """
    (nodes, first, voters), (names, second, votes) = before, after
    if len(first) != len(second):
        raise ValueError(f"{len(first)} partitions before and {len(second)} after")
    if (first.shape[1], voters) != (second.shape[1], votes):
        return np.ones(len(first), dtype=np.bool_)
    known = tuple(dict.fromkeys((*nodes, *names)))
    one, other = renumbered(nodes, first, known), renumbered(names, second, known)
    changed = np.zeros(len(first), dtype=np.bool_)
    for columns in (slice(None, voters), slice(voters, None)):
        sets = (np.sort(each[:, columns], axis=1) for each in (one, other))
        changed |= np.any(np.not_equal(*sets), axis=1)
    return changed
