"""How even a placement is: replicas, voters, primaries, keys and bytes of each node (VOL-084, VOL-086)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rebalance.kernels.assessment import Spread, spread_of
from rebalance.kernels.skew import Counts
from rebalance.kernels.transfers import Sizes
from rebalance.ports.placement import PreviousPlacement
from spark.analysis import Analysis
from spark.arrays import pack
from spark.frames import FrameKind
from spark.skew_job import CELLS, KEYS, PIECES_SCHEMA, computed, summed

KEYS_PER_PIECE = 1 << 19
PARTITIONS_PER_PIECE = 1 << 17


@dataclass(frozen=True, slots=True)
class Skew:
    """``counts``: name -> int64 [N], what each of ``nodes`` holds."""

    nodes: tuple[str, ...]
    counts: dict[str, Counts]

    def spreads(self) -> dict[str, Spread]:
        return {name: spread_of(count) for name, count in self.counts.items()}


def analysis(placed: PreviousPlacement, keys: int = 0, sizes: Sizes | None = None) -> Analysis[Skew]:
    """``keys``: how many generated keys are spread over the partitions; ``sizes`` int64 [P] bytes of a copy of
    each partition. Raises ValueError when the sizes do not fit."""
    count = len(placed.matrix)
    if sizes is not None and len(sizes) != count:
        raise ValueError(f"{len(sizes)} sizes for {count} partitions")
    pieces = []
    if keys and count:
        for first in range(0, keys, KEYS_PER_PIECE):
            span = np.array([first, min(first + KEYS_PER_PIECE, keys)])
            pieces.append(_piece(KEYS, {"range": span, "partitions": np.array(count)}))
    for first in range(0, max(count, 1), PARTITIONS_PER_PIECE):
        arrays: dict[str, npt.NDArray[Any]] = {
            "first": np.array(first),
            "matrix": placed.matrix[first : first + PARTITIONS_PER_PIECE],
            "sizes": np.array([len(placed.nodes), placed.consensus]),
        }
        if sizes is not None:
            arrays["bytes"] = sizes[first : first + PARTITIONS_PER_PIECE]
        pieces.append(_piece(CELLS, arrays))
    table = pa.Table.from_batches(pieces, PIECES_SCHEMA)
    return Analysis(FrameKind.SKEW, table, computed, lambda answer: Skew(placed.nodes, summed(answer)))


def _piece(kind: str, arrays: dict[str, npt.NDArray[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "arrays": pack(arrays)}], PIECES_SCHEMA)
