"""A function over the batches of an Arrow table: on Spark, where each batch is a task, or in this process.

It runs on executors, so nothing of pyspark is imported at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
