"""Do the copies of each partition agree? Update counters and sizes out of full maps (PME-088, PME-089).

- *copies*: ``zone``, ``partition``, ``node`` and ``state`` (text), ``update_counter`` and ``size``, a row for
  each copy in a full map.
- the answer: the *copies* that are OWNING, of every partition whose OWNING copies differ.

Here in pyarrow, on a cluster in Spark's own operators: nothing of it is worth a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark.analysis import Analysis
from spark.frames import FrameKind

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


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """One copy as its node reports it; ``state`` is a CopyState's value, ``size`` a number of keys."""

    zone: int
    partition: int
    node: str
    state: str
    update_counter: int
    size: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """``copies`` are the OWNING ones of one partition, in node order."""

    zone: int
    partition: int
    copies: tuple[Copy, ...]

    def describe(self) -> str:
        """Names group, partition, nodes and values."""
        told = []
        for name, values in (
            ("update counters", {each.node: each.update_counter for each in self.copies}),
            ("sizes", {each.node: each.size for each in self.copies}),
        ):
            if len(set(values.values())) > 1:
                told.append(f"{name} differ: " + ", ".join(f"{node} {value}" for node, value in values.items()))
        return f"partition {self.zone}/{self.partition}: {'; '.join(told)}"


def analysis(copies: Sequence[Copy]) -> Analysis[list[Disagreement]]:
    """The partitions whose OWNING copies differ, in order. Copies in other states are not compared: they are
    being filled, or nobody wants them."""
    return of_table(pa.Table.from_pylist([asdict(each) for each in copies], COPIES_SCHEMA))


def of_table(copies: pa.Table) -> Analysis[list[Disagreement]]:
    """``copies`` with the columns of ``COPIES_SCHEMA``."""
    return Analysis(FrameKind.VALIDATE, copies, computed, _decoded)


def _decoded(answer: pa.Table) -> list[Disagreement]:
    found = sorted(Copy(**row) for row in answer.to_pylist())
    grouped = groupby(found, key=lambda each: (each.zone, each.partition))
    return [Disagreement(zone, partition, tuple(each)) for (zone, partition), each in grouped]


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
