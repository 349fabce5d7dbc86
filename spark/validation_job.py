"""The validation job: copies of one partition that should be the same, and are not (PME-088, PME-089).

- *copies*: ``zone``, ``partition``, ``node`` and ``state`` (text), ``update_counter`` and ``size``, a row for
  each copy in a full map.
- the answer: the *copies* that are OWNING, of every partition whose OWNING copies differ.

Here in pyarrow, on a cluster in Spark's own operators: nothing of it is worth a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPIES_SCHEMA = pa.schema(
    [
        ("zone", pa.int32()),
        ("partition", pa.int32()),
        ("node", pa.string()),
        ("state", pa.string()),
        ("update_counter", pa.int64()),
        ("size", pa.int64()),
    ]
)
OWNING = "OWNING"
BY = ["zone", "partition"]
COMPARED = ("update_counter", "size")


def run(session: SparkSession, copies: pa.Table, parallelism: int) -> pa.Table:
    """One job. Raises what Spark raises when it fails."""
    from pyspark.sql import functions as f

    owners = session.createDataFrame(copies).where(f.col("state") == OWNING)
    bounds = [side(name).alias(f"{label}_{name}") for name in COMPARED for label, side in _sides(f)]
    apart = " or ".join(f"min_{name} <> max_{name}" for name in COMPARED)
    differing = owners.groupBy(*BY).agg(*bounds).where(apart).select(*BY)
    found: pa.Table = owners.join(differing, BY).select(*COPIES_SCHEMA.names).toArrow()
    return found.cast(COPIES_SCHEMA)


def _sides(functions: Any) -> tuple[tuple[str, Any], ...]:
    return ("min", functions.min), ("max", functions.max)


def computed(copies: pa.Table) -> pa.Table:
    """The same in this process."""
    owners = copies.filter(pc.equal(copies.column("state"), OWNING))
    wanted = [(name, side) for name in COMPARED for side in ("min", "max")]
    bounds = owners.group_by(BY).aggregate(wanted)
    apart = [pc.not_equal(bounds.column(f"{name}_min"), bounds.column(f"{name}_max")) for name in COMPARED]
    differing = bounds.filter(pc.or_(*apart)).select(BY)
    return owners.join(differing, BY, join_type="left semi").select(COPIES_SCHEMA.names).cast(COPIES_SCHEMA)
