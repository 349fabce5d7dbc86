"""Evenness of a placement: replicas, voters, primaries, keys and bytes of each node (VOL-084, VOL-086).

The job counts what each node of a placement holds, with generated keys spread over the partitions. Its tables:

- *pieces* [G]: ``kind`` and ``arrays``. "keys": ``range`` (first and end key number) and ``partitions``.
  "cells": ``matrix`` int32 [count, R], ``sizes`` ([nodes, voters]), ``bytes`` int64 [count] or none, ``first``.
- *counts*: ``name`` and ``count``, little-endian int64 [N].

Two steps, as keys must be counted by partition before they can be counted by node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rebalance.groups.calls.key_hash import partition_of
from rebalance.kernels.assessment import Counts, Spread, counted, spread_of
from rebalance.kernels.transfers import Sizes
from rebalance.ports.placement import PreviousPlacement
from spark.arrays import pack, unpack
from spark.frames import FrameKind
from spark.mapped import Analysis, here, on_spark, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS, CELLS = "keys", "cells"
PIECES_SCHEMA = schema_of(kind=pa.string(), arrays=pa.binary())
COUNTS_SCHEMA = schema_of(name=pa.string(), count=pa.binary())
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
    return Analysis(FrameKind.SKEW, table, _computed, lambda answer: Skew(placed.nodes, summed(answer)))


def _piece(kind: str, arrays: dict[str, npt.NDArray[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "arrays": pack(arrays)}], PIECES_SCHEMA)


def run(session: SparkSession, pieces: pa.Table, parallelism: int) -> pa.Table:
    """Returns *counts* of each piece. Raises what Spark raises when a job fails."""
    return in_two_steps(pieces, lambda some: on_spark(session, some, count_batches, COUNTS_SCHEMA))


def _computed(pieces: pa.Table) -> pa.Table:
    return in_two_steps(pieces, lambda some: here(some, count_batches, COUNTS_SCHEMA))


def in_two_steps(pieces: pa.Table, step: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """``step`` turns pieces of one kind into counts: first the keys, which then go along with the cells."""
    kinds = [(str(piece.column("kind")[0]), piece) for piece in pieces.to_batches()]
    of_keys, of_cells = ([piece for kind, piece in kinds if kind == wanted] for wanted in (KEYS, CELLS))
    if of_keys:
        held = summed(step(pa.Table.from_batches(of_keys, PIECES_SCHEMA)))[KEYS]
        of_cells = [_with_keys(cells, held) for cells in of_cells]
    return step(pa.Table.from_batches(of_cells, PIECES_SCHEMA))


def count_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count on an executor: *pieces* to *counts*."""
    for batch in batches:
        for row in batch.to_pylist():
            arrays = unpack(row["arrays"])
            counts = _keys(arrays) if row["kind"] == KEYS else _cells(arrays)
            rows = [{"name": name, "count": count.astype("<i8").tobytes()} for name, count in counts.items()]
            yield pa.RecordBatch.from_pylist(rows, COUNTS_SCHEMA)


def summed(counts: pa.Table) -> dict[str, Counts]:
    """The counts of all pieces together, in the order of their names' first appearance."""
    sums: dict[str, Counts] = {}
    for row in counts.to_pylist():
        part = np.frombuffer(row["count"], dtype="<i8")
        sums[row["name"]] = sums.get(row["name"], 0) + part
    return sums


def _keys(arrays: dict[str, npt.NDArray[np.int64]]) -> dict[str, Counts]:
    """Keys of each partition. They are numbered texts, so that the answer is always the same."""
    partitions = int(arrays["partitions"])
    first, end = arrays["range"].tolist()
    numbers = np.fromiter((partition_of(f"key-{n}", partitions) for n in range(first, end)), np.int64)
    return {KEYS: np.bincount(numbers, minlength=partitions)}


def _cells(arrays: dict[str, npt.NDArray[np.int64]]) -> dict[str, Counts]:
    nodes, voters = arrays["sizes"].tolist()
    held = {name: arrays[name] for name in (KEYS, "bytes") if name in arrays}
    return counted(nodes, arrays["matrix"].astype(np.int32), voters, held)


def _with_keys(piece: pa.RecordBatch, held: Counts) -> pa.RecordBatch:
    arrays = unpack(piece.column("arrays")[0].as_py())
    first = int(arrays["first"])
    arrays[KEYS] = held[first : first + len(arrays["matrix"])]
    return _piece(CELLS, arrays)
