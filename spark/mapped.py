"""A function over the batches of an Arrow table: on Spark, where each batch is a task, or in this process.

An ``Analysis`` is a question that both can answer by the same functions on the same tables; each kind is made
by its module: ``what_if``, ``plan_transfers``, ``skew`` and ``copies``. ``SparkPlacementEngine.answer`` runs
it.

It runs on executors, so nothing of pyspark is imported at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from spark.frames import FrameKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def schema_of(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def on_spark(session: SparkSession, table: pa.Table, mapper: Mapper, schema: pa.Schema) -> pa.Table:
    """One job; rows of ``schema`` in any order. Raises what Spark raises when the job fails."""
    from pyspark.sql.pandas.types import from_arrow_schema

    answer: pa.Table = session.createDataFrame(table).mapInArrow(mapper, from_arrow_schema(schema)).toArrow()
    return answer


def here(table: pa.Table, mapper: Mapper, schema: pa.Schema) -> pa.Table:
    """The same in this process."""
    return pa.Table.from_batches(mapper(iter(table.to_batches())), schema)


@dataclass(frozen=True, slots=True)
class Analysis(Generic[T]):
    """``table`` is what the job of ``kind`` takes, ``compute`` does the same here, ``decode`` reads the answer
    of either. All plain computation, run in a thread."""

    kind: FrameKind
    table: pa.Table
    compute: Callable[[pa.Table], pa.Table]
    decode: Callable[[pa.Table], T]

    def here(self) -> T:
        return self.decode(self.compute(self.table))
