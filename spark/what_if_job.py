"""The what-if job: many candidate topologies for one zone, each placed and assessed by an executor.

- *candidates* [C] (from the engine): ``candidate`` number and ``problem`` (``balanced_rows``, whose previous
  placement is left out), ``algorithm``. One more row, with number -1, carries the placement as it is.
- *assessments* [C]: ``candidate`` and ``assessment`` (JSON of ``rebalance.kernels.assessment``), or ``error``.

The placement as it is travels once, as a broadcast, and not with each candidate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rebalance.kernels.assessment import assess
from rebalance.kernels.rendezvous import place, voters
from spark.balanced_rows import decode_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE = -1
BALANCED = "balanced"
CANDIDATES_SCHEMA = pa.schema([("candidate", pa.int32()), ("algorithm", pa.string()), ("problem", pa.binary())])
ASSESSMENTS_SCHEMA = pa.schema([("candidate", pa.int32()), ("assessment", pa.string()), ("error", pa.string())])
ASSESSMENTS_DDL = "candidate int, assessment string, error string"
TASKS_PER_CORE = 4
"""Candidates differ in cost: smaller tasks even that out."""


def run(session: SparkSession, candidates: pa.Table, parallelism: int) -> pa.Table:
    """One job; returns *assessments* in any order. Raises what Spark raises when the job fails."""
    is_before = pc.equal(candidates.column("candidate"), BEFORE)
    (before,) = candidates.filter(is_before).column("problem").to_pylist()
    others = candidates.filter(pc.invert(is_before)).combine_chunks()
    if not others.num_rows:
        return ASSESSMENTS_SCHEMA.empty_table()
    shared = session.sparkContext.broadcast(before)
    share = -(-others.num_rows // (TASKS_PER_CORE * parallelism))
    tasks = pa.Table.from_batches(others.to_batches(max_chunksize=share), CANDIDATES_SCHEMA)

    def assess_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return assessed(shared.value, batches)

    try:
        found: pa.Table = session.createDataFrame(tasks).mapInArrow(assess_batches, ASSESSMENTS_DDL).toArrow()
    finally:
        shared.unpersist()
    return found


def assessed(before: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What an executor runs: *candidates* to *assessments*."""
    placed = decode_problem(before).previous
    assert placed is not None, "the row of the placement as it is"
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            answer = {"candidate": row["candidate"]}
            try:
                problem = replace(decode_problem(row["problem"]), previous=placed)
                if row["algorithm"] == BALANCED:
                    from rebalance.kernels.balanced import balance

                    matrix = balance(problem)
                else:
                    matrix = place(problem.nodes, range(problem.partitions), problem.replicas)
                votes = voters(problem.voters, matrix.shape[1])
                was = (placed.nodes, placed.matrix, placed.voters)
                found = assess(problem.nodes, matrix, votes, problem.domains, was)
                rows.append({**answer, "assessment": json.dumps(asdict(found))})
            except Exception as error:
                # It belongs to this candidate: the others are still worth having.
                rows.append({**answer, "error": str(error) or type(error).__name__})
        yield pa.RecordBatch.from_pylist(rows, ASSESSMENTS_SCHEMA)
