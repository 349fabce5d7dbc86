"""What-if: candidate topologies of one zone against its placement as it is, compared and put in order.

The order is lexical: first whether the candidate can be placed, then how many partitions one lost failure
domain and one lost node would leave without a majority, then evenness, then what moves. Each verdict says what
decided.

The job places and assesses each candidate on an executor. Its tables:

- *candidates* [C] (from the engine): ``candidate`` number and ``problem`` (``spark.arrays``, whose previous
  placement is left out), ``algorithm``. One more row, with number -1, carries the placement as it is.
- *assessments* [C]: ``candidate`` and ``assessment`` (JSON of ``rebalance.kernels.assessment``), or ``error``.

The placement as it is travels once, as a broadcast, and not with each candidate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rebalance.kernels.assessment import Assessment, Spread, assess
from rebalance.kernels.rendezvous import place, voters
from rebalance.ports.placement import PlacementRequest, PreviousPlacement
from spark.arrays import decode_problem, encode_problem
from spark.batch import BALANCED
from spark.errors import JobFailedError
from spark.frames import FrameKind
from spark.mapped import Analysis, on_spark, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE = -1
INT, TEXT = pa.int32(), pa.string()
CANDIDATES_SCHEMA = schema_of(candidate=INT, algorithm=TEXT, problem=pa.binary())
ASSESSMENTS_SCHEMA = schema_of(candidate=INT, assessment=TEXT, error=TEXT)
TASKS_PER_CORE = 4
"""Candidates differ in cost: smaller tasks even that out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """``request.previous`` is left out: all candidates start from one placement."""

    name: str
    request: PlacementRequest


@dataclass(frozen=True, slots=True)
class Verdict:
    """``assessment`` None: ``reason`` says why the candidate cannot be placed."""

    candidate: Candidate
    assessment: Assessment | None
    reason: str


def analysis(before: PreviousPlacement, candidates: Sequence[Candidate]) -> Analysis[list[Verdict]]:
    """The candidates, the best first."""
    table = encode(before, candidates)
    return Analysis(
        FrameKind.WHAT_IF, table, assess_locally, lambda assessments: verdicts(candidates, assessments)
    )


def encode(before: PreviousPlacement, candidates: Sequence[Candidate]) -> pa.Table:
    """The *candidates* table of the job."""
    # Compiled kernels are loaded where somebody asks for them.
    from rebalance.kernels.balanced import Placed, PlacementProblem

    placed = Placed(before.nodes, before.matrix, before.consensus)
    partitions, width = before.matrix.shape
    rows = [(BEFORE, "", PlacementProblem(before.nodes, partitions, width, before.consensus, placed))]
    for number, request in enumerate(candidate.request for candidate in candidates):
        size = (request.partitions, request.replicas, request.consensus)
        problem = PlacementProblem(request.nodes, *size, weights=request.weights, domains=request.domains)
        rows.append((number, request.algorithm, problem))
    numbers, algorithms, problems = zip(*rows, strict=True)
    return pa.table([numbers, algorithms, map(encode_problem, problems)], schema=CANDIDATES_SCHEMA)


def assess_locally(table: pa.Table) -> pa.Table:
    """*assessments*, in this process."""
    before = next(row["problem"] for row in table.to_pylist() if row["candidate"] == BEFORE)
    others = table.filter(pc.not_equal(table.column("candidate"), BEFORE))
    return pa.Table.from_batches(list(assessed(before, iter(others.to_batches()))))


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
    try:
        return on_spark(session, tasks, lambda batches: assessed(shared.value, batches), ASSESSMENTS_SCHEMA)
    finally:
        shared.unpersist()


def assessed(before: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Assess on an executor: *candidates* to *assessments*."""
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
                assessment = assess(problem.nodes, matrix, votes, problem.domains, was)
                rows.append({**answer, "assessment": json.dumps(asdict(assessment))})
            except Exception as error:
                # It belongs to this candidate: the others are still worth having.
                rows.append({**answer, "error": str(error) or type(error).__name__})
        yield pa.RecordBatch.from_pylist(rows, ASSESSMENTS_SCHEMA)


def verdicts(candidates: Sequence[Candidate], assessments: pa.Table) -> list[Verdict]:
    """The best first. Raises JobFailedError when an answer is missing."""
    outcomes = {row["candidate"]: row for row in assessments.to_pylist()}
    if len(outcomes) != len(candidates):
        raise JobFailedError(f"{len(outcomes)} of {len(candidates)} candidates came back")
    judged = []
    for number, candidate in enumerate(candidates):
        error = outcomes[number]["error"]
        assessment = None if error else _decoded(outcomes[number]["assessment"])
        judged.append(Verdict(candidate, assessment, error or ""))
    ordered = sorted(judged, key=lambda verdict: _rank(verdict.assessment))
    return [replace(verdict, reason=_reason(verdict, ordered[0])) for verdict in ordered]


def _decoded(text: str) -> Assessment:
    fields = json.loads(text)
    first, second, third = (Spread(**spread) for spread in fields.pop("spreads"))
    return Assessment(spreads=(first, second, third), **fields)


CRITERIA = (
    "partitions that lose their majority with one failure domain",
    "partitions that lose their majority with one node",
    "replicas max - min",
    "primaries max - min",
    "replicas that move",
)


def _rank(assessment: Assessment | None) -> tuple[int, ...]:
    """0 where a candidate can be placed, then CRITERIA in order. A difference of one is no unevenness: shares
    are rarely whole numbers."""
    if assessment is None:
        return (1,)
    return (
        0,
        assessment.lost_to_a_domain or 0,
        assessment.lost_to_a_node,
        max(assessment.spreads[0].max_min, 1),
        max(assessment.spreads[2].max_min, 1),
        assessment.moved,
    )


def _reason(verdict: Verdict, best: Verdict) -> str:
    if verdict.assessment is None:
        return f"cannot be placed: {verdict.reason}"
    own, least = _rank(verdict.assessment)[1:], _rank(best.assessment)[1:]
    if verdict is best:
        return "best: " + ", ".join(f"{value} {name}" for name, value in zip(CRITERIA, own, strict=True))
    for name, value, lower in zip(CRITERIA, own, least, strict=True):
        if value != lower:
            return f"{value} {name}, the best has {lower}"
    return "as good as the best"
