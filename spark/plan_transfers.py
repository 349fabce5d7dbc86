"""Moves of a change of placement: per partition, and in total by donor and stealer (VOL-085, VOL-087).

The job finds donors and stealers of every partition between two placements of one zone. Its tables:

- *pieces* [G]: ``first`` partition and ``arrays``: ``before`` and ``after`` int32 [count, R], ``sizes`` int64
  [count] bytes. One Arrow batch a piece: Spark makes one task of each.
- *transfers* [T]: ``partition``, ``donor``, ``stealer`` (numbers of nodes, -1: nobody) and ``bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rebalance.kernels.assessment import renumbered
from rebalance.kernels.transfers import Sizes, Totals, Transfers, named_twice, totals, transfers
from rebalance.ports.placement import PreviousPlacement
from spark.arrays import pack, unpack
from spark.frames import FrameKind
from spark.mapped import Analysis, here, on_spark, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INT = pa.int32()
PIECES_SCHEMA = schema_of(first=INT, arrays=pa.binary())
TRANSFERS_SCHEMA = schema_of(partition=INT, donor=INT, stealer=INT, bytes=pa.int64())
PARTITIONS_PER_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """``single`` and ``total`` number ``nodes``, which are all nodes of both placements in name order."""

    nodes: tuple[str, ...]
    single: Transfers
    total: Totals


def analysis(
    before: PreviousPlacement, after: PreviousPlacement, sizes: Sizes | None = None
) -> Analysis[TransferPlan]:
    """``sizes`` int64 [P]: bytes of a copy of each partition; None: not known, 0.

    Raises ValueError for different numbers of partitions, or for a partition that names a node twice.
    """
    count = len(before.matrix)
    if len(after.matrix) != count:
        raise ValueError(f"{count} partitions before and {len(after.matrix)} after")
    if sizes is not None and len(sizes) != count:
        raise ValueError(f"{len(sizes)} sizes for {count} partitions")
    nodes = tuple(sorted({*before.nodes, *after.nodes}))
    old, new = (_numbered(placed, nodes) for placed in (before, after))
    known = np.zeros(count, dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
    pieces = []
    for first in range(0, count, PARTITIONS_PER_PIECE):
        rows = slice(first, first + PARTITIONS_PER_PIECE)
        arrays = pack({"before": old[rows], "after": new[rows], "sizes": known[rows]})
        pieces.append(pa.RecordBatch.from_pylist([{"first": first, "arrays": arrays}], PIECES_SCHEMA))
    table = pa.Table.from_batches(pieces, PIECES_SCHEMA)
    return Analysis(FrameKind.PLAN, table, _computed, lambda answer: _decoded(nodes, answer))


def run(session: SparkSession, pieces: pa.Table, parallelism: int) -> pa.Table:
    """One job; *transfers* in any order. Raises what Spark raises when the job fails."""
    return on_spark(session, pieces, transfer_batches, TRANSFERS_SCHEMA)


def transfer_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find transfers on an executor: *pieces* to *transfers*."""
    for batch in batches:
        for row in batch.to_pylist():
            arrays = unpack(row["arrays"])
            moved = transfers(arrays["before"], arrays["after"], arrays["sizes"], row["first"])
            columns = [moved.partition, moved.donor, moved.stealer, moved.size]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=TRANSFERS_SCHEMA)


def _numbered(placed: PreviousPlacement, nodes: tuple[str, ...]) -> npt.NDArray[np.int32]:
    row = named_twice(placed.matrix)
    if row is not None:
        names = ", ".join(placed.nodes[at] for at in placed.matrix[row])
        raise ValueError(f"partition {row} names a node twice: {names}")
    return renumbered(placed.nodes, placed.matrix, nodes)


def _computed(pieces: pa.Table) -> pa.Table:
    return here(pieces, transfer_batches, TRANSFERS_SCHEMA)


def _decoded(nodes: tuple[str, ...], answer: pa.Table) -> TransferPlan:
    ordered = answer.sort_by([("partition", "ascending")])
    columns = (ordered.column(name).to_numpy() for name in ("partition", "donor", "stealer", "bytes"))
    single = Transfers(*columns)
    return TransferPlan(nodes, single, totals(single))
