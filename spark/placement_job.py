"""The placement job: all zones of a batch in one Spark job, the kernel in ``mapInArrow``.

Three tables, each of fixed-size cells and bytes; no string and no Python object per replica is on the way.

- *zones* [Z] (from the engine): ``zone`` row number, ``partitions``, ``replicas``, ``hashes``, ``order`` (the
  node dictionary, little-endian int32 [N] each), ``problem`` (``spark.arrays``, null in other zones).
- *ranges* [G] (made by the driver, one Arrow batch per task): as zones, but ``first`` and ``count`` in place of
  ``partitions``. A range has at most CELLS_PER_RANGE_MAX cells, and there are enough of them for every core; a
  balanced zone is one range.
- *cells* [G] (from the executors): ``zone``, ``first``, ``count``, ``width`` and ``cells``, little-endian int32
  [count, width] row by row. Binary and not a fixed-size list, because zones of one batch differ in width.
  ``error`` is set instead where a zone cannot be placed, so that one bad zone is named and fails no executor.

Source: IEP-038. This module runs on executors too: nothing of pyspark is imported at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rebalance.kernels.rendezvous import Matrix, NodeDictionary, place_hashed
from spark.arrays import decode_problem
from spark.mapped import on_spark, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INT, BYTES = pa.int32(), pa.binary()
ZONES_SCHEMA = schema_of(zone=INT, partitions=INT, replicas=INT, hashes=BYTES, order=BYTES, problem=BYTES)
RANGES_SCHEMA = schema_of(
    zone=INT, first=INT, count=INT, replicas=INT, hashes=BYTES, order=BYTES, problem=BYTES
)
CELLS_SCHEMA = schema_of(zone=INT, first=INT, count=INT, width=INT, cells=BYTES, error=pa.string())

Row = dict[str, Any]
"""One of a table, by the columns of its schema."""

CELLS_PER_RANGE_MAX = 1 << 18
"""1 MiB of result per row."""

ROWS_PER_BATCH_MAX = 256
"""Rows that Spark puts in one Arrow batch: with the limit above, far below the 2 GiB that a column can hold."""

HASHES_PER_TASK_MIN = 1 << 20
"""About 5 ms of work: a smaller share is not worth a task of its own."""


def run(session: SparkSession, zones: pa.Table, parallelism: int) -> pa.Table:
    """Run one job; returns *cells*. ``parallelism`` is how many tasks the cluster runs at a time.

    Raises what Spark raises when the job fails; a zone's own fault is a row with ``error`` instead.
    """
    ranges = split(zones, parallelism)
    if ranges.num_rows == 0:
        return CELLS_SCHEMA.empty_table()
    return on_spark(session, ranges, place_batches, CELLS_SCHEMA)


def split(zones: pa.Table, parallelism: int) -> pa.Table:
    """Cut *zones* into *ranges*, with one Arrow batch per task: Spark makes one task of each batch.

    Zones of no partitions or with no node yield no range: their matrix is empty.
    """
    rows = [row for row in zones.to_pylist() if row["partitions"] > 0 and row["hashes"]]
    work = sum(row["partitions"] * _node_count(row["hashes"]) for row in rows)
    tasks = max(1, min(2 * parallelism, work // HASHES_PER_TASK_MIN))
    share = -(-work // tasks)
    batches: list[list[Row]] = [[]]
    filled = 0
    for piece in (piece for row in rows for piece in _pieces(row, share)):
        if batches[-1] and (filled >= share or len(batches[-1]) >= ROWS_PER_BATCH_MAX):
            batches.append([])
            filled = 0
        batches[-1].append(piece)
        filled += piece["count"] * _node_count(piece["hashes"])
    return pa.Table.from_batches([pa.RecordBatch.from_pylist(b, RANGES_SCHEMA) for b in batches], RANGES_SCHEMA)


def _pieces(zone: Row, share: int) -> Iterator[Row]:
    """A zone's ranges: none has more cells than allowed or more hashes than one task's share."""
    nodes = _node_count(zone["hashes"])
    width = max(1, min(zone["replicas"], nodes))
    step = max(1, min(CELLS_PER_RANGE_MAX // width, share // nodes))
    if zone["problem"] is not None:
        # Balance is a property of the whole zone.
        step = zone["partitions"]
    whole = {name: zone[name] for name in ("zone", "replicas", "hashes", "order", "problem")}
    for first in range(0, zone["partitions"], step):
        yield {**whole, "first": first, "count": min(step, zone["partitions"] - first)}


def place_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Place on an executor: *ranges* to *cells*, one row at a time so that memory holds one range."""
    for batch in batches:
        for row in batch.to_pylist():
            yield pa.RecordBatch.from_pylist([_place_range(row)], CELLS_SCHEMA)


def _place_range(row: Row) -> Row:
    answer: Row = {"zone": row["zone"], "first": row["first"], "count": row["count"], "width": 0}
    try:
        if row["problem"] is not None:
            from rebalance.kernels.balanced import balance

            return _answered(answer, balance(decode_problem(row["problem"])))
        dictionary = NodeDictionary(
            np.frombuffer(row["hashes"], dtype="<i4").astype(np.int32),
            np.frombuffer(row["order"], dtype="<i4").astype(np.int32),
        )
        matrix = place_hashed(dictionary, range(row["first"], row["first"] + row["count"]), row["replicas"])
    except Exception as error:
        # Whatever it is, it belongs to this zone: raised here it would fail the job and name none.
        return {**answer, "error": str(error) or type(error).__name__}
    return _answered(answer, matrix)


def _answered(answer: Row, matrix: Matrix) -> Row:
    return {**answer, "width": matrix.shape[1], "cells": matrix.astype("<i4", copy=False).tobytes()}


def _node_count(hashes: bytes) -> int:
    return len(hashes) // 4
