"""Do the copies of each partition agree? Update counters and sizes out of full maps (PME-088, PME-089).

The job's tables:

- *copies*: ``zone``, ``partition``, ``node`` and ``state`` (text), ``update_counter`` and ``size``, a row for
  each copy in a full map.
- the answer: the *copies* that are OWNING, of every partition whose OWNING copies differ.

Here in pyarrow, on a cluster in Spark's own operators: nothing of it is worth a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark.frames import FrameKind
from spark.mapped import Analysis, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INT, TEXT, LONG = pa.int32(), pa.string(), pa.int64()
COPIES_SCHEMA = schema_of(zone=INT, partition=INT, node=TEXT, state=TEXT, update_counter=LONG, size=LONG)
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
        differences = []
        for name, values in (
            ("update counters", {copy.node: copy.update_counter for copy in self.copies}),
            ("sizes", {copy.node: copy.size for copy in self.copies}),
        ):
            if len(set(values.values())) > 1:
                shown = ", ".join(f"{node} {value}" for node, value in values.items())
                differences.append(f"{name} differ: {shown}")
        return f"partition {self.zone}/{self.partition}: {'; '.join(differences)}"


def analysis(copies: Sequence[Copy]) -> Analysis[list[Disagreement]]:
    """The partitions whose OWNING copies differ, in order. Copies in other states are not compared: they are
    being filled, or nobody wants them."""
    return of_table(pa.Table.from_pylist([asdict(copy) for copy in copies], COPIES_SCHEMA))


def of_table(copies: pa.Table) -> Analysis[list[Disagreement]]:
    """``copies`` with the columns of COPIES_SCHEMA."""
    return Analysis(FrameKind.VALIDATE, copies, _computed, _decoded)


def _decoded(answer: pa.Table) -> list[Disagreement]:
    copies = sorted(Copy(**row) for row in answer.to_pylist())
    grouped = groupby(copies, key=lambda copy: (copy.zone, copy.partition))
    return [Disagreement(zone, partition, tuple(members)) for (zone, partition), members in grouped]


def run(session: SparkSession, copies: pa.Table, parallelism: int) -> pa.Table:
    """One job. Raises what Spark raises when it fails."""
    from pyspark.sql import functions as f

    owners = session.createDataFrame(copies).where(f.col("state") == OWNING)
    sides = {"min": f.min, "max": f.max}
    bounds = [side(name).alias(f"{label}_{name}") for name in COMPARED for label, side in sides.items()]
    apart = " or ".join(f"min_{name} <> max_{name}" for name in COMPARED)
    differing = owners.groupBy(*BY).agg(*bounds).where(apart).select(*BY)
    answer: pa.Table = owners.join(differing, BY).select(*COPIES_SCHEMA.names).toArrow()
    return answer.cast(COPIES_SCHEMA)


def _computed(copies: pa.Table) -> pa.Table:
    """The same in this process."""
    owners = copies.filter(pc.equal(copies.column("state"), OWNING))
    bounds = owners.group_by(BY).aggregate([(name, side) for name in COMPARED for side in ("min", "max")])
    apart = [pc.not_equal(bounds.column(f"{name}_min"), bounds.column(f"{name}_max")) for name in COMPARED]
    differing = bounds.filter(pc.or_(*apart)).select(BY)
    return owners.join(differing, BY, join_type="left semi").select(COPIES_SCHEMA.names).cast(COPIES_SCHEMA)
