"""The plan job: donors and stealers of every partition between two placements of one zone.

- *pieces* [G]: ``first`` partition and ``arrays``: ``before`` and ``after`` int32 [count, R], ``sizes`` int64
  [count] bytes. One Arrow batch a piece: Spark makes one task of each.
- *transfers* [T]: ``partition``, ``donor``, ``stealer`` (numbers of nodes, -1: nobody) and ``bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rebalance.kernels.transfers import transfers
from spark.arrays import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES_SCHEMA = pa.schema([("first", pa.int32()), ("arrays", pa.binary())])
TRANSFERS_SCHEMA = pa.schema(
    [("partition", pa.int32()), ("donor", pa.int32()), ("stealer", pa.int32()), ("bytes", pa.int64())]
)
TRANSFERS_DDL = "partition int, donor int, stealer int, bytes bigint"


def run(session: SparkSession, pieces: pa.Table, parallelism: int) -> pa.Table:
    """One job; *transfers* in any order. Raises what Spark raises when the job fails."""
    found: pa.Table = session.createDataFrame(pieces).mapInArrow(transfer_batches, TRANSFERS_DDL).toArrow()
    return found


def transfer_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What an executor runs: *pieces* to *transfers*."""
    for batch in batches:
        for row in batch.to_pylist():
            arrays = unpack(row["arrays"])
            found = transfers(arrays["before"], arrays["after"], arrays["sizes"], row["first"])
            columns = [found.partition, found.donor, found.stealer, found.size]
            yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=TRANSFERS_SCHEMA)
