"""What each node of a placement holds: replicas, voters, primaries, and keys or bytes (VOL-084, VOL-086).

Counts of ranges of partitions add up, so that a cluster can count ranges side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rebalance.kernels.assessment import LEVELS, level_counts
from rebalance.kernels.rendezvous import Matrix

Counts = npt.NDArray[np.int64]


def counted(nodes: int, matrix: Matrix, voters: int, held: Mapping[str, Counts]) -> dict[str, Counts]:
    """What each of ``nodes`` holds of ``matrix`` int32 [P, R]: name -> int64 [N].

    ``held``: "keys", say -> int64 [P], what one copy of each partition holds. It is counted over all copies,
    and as "primary_keys" over those of primaries.
    """
    found = dict(zip(LEVELS, level_counts(nodes, matrix, voters), strict=True))
    for name, each in held.items():
        for label, width in ((name, matrix.shape[1]), (f"primary_{name}", min(1, matrix.shape[1]))):
            sums = np.zeros(nodes, dtype=np.int64)
            np.add.at(sums, matrix[:, :width].ravel(), np.repeat(each, width))
            found[label] = sums
    return found
