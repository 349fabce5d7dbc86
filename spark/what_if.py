"""What-if: candidate topologies of one zone against its placement as it is, compared and put in order.

The order is lexical: first whether the candidate can be placed, then how many partitions one lost failure
domain and one lost node would leave without a majority, then evenness, then what moves. Each verdict says what
decided.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rebalance.kernels.assessment import Assessment, Spread
from rebalance.kernels.balanced import Placed, PlacementProblem
from rebalance.ports.placement import PlacementRequest, PreviousPlacement
from spark.analysis import Analysis
from spark.balanced_rows import encode_problem
from spark.errors import JobFailedError
from spark.frames import FrameKind
from spark.what_if_job import BEFORE, CANDIDATES_SCHEMA, assessed


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
    placed = Placed(before.nodes, before.matrix, before.consensus)
    partitions, width = before.matrix.shape
    rows = [(BEFORE, "", PlacementProblem(before.nodes, partitions, width, before.consensus, placed))]
    for number, candidate in enumerate(candidates):
        asked = candidate.request
        problem = PlacementProblem(
            asked.nodes,
            asked.partitions,
            asked.replicas,
            asked.consensus,
            weights=asked.weights,
            domains=asked.domains,
        )
        rows.append((number, asked.algorithm, problem))
    columns = {
        "candidate": [number for number, _, _ in rows],
        "algorithm": [algorithm for _, algorithm, _ in rows],
        "problem": [encode_problem(problem) for _, _, problem in rows],
    }
    return pa.table(columns, schema=CANDIDATES_SCHEMA)


def assess_locally(table: pa.Table) -> pa.Table:
    """*assessments*, in this process."""
    before = next(row["problem"] for row in table.to_pylist() if row["candidate"] == BEFORE)
    others = table.filter(pc.not_equal(table.column("candidate"), BEFORE))
    return pa.Table.from_batches(list(assessed(before, iter(others.to_batches()))))


def verdicts(candidates: Sequence[Candidate], assessments: pa.Table) -> list[Verdict]:
    """The best first. Raises JobFailedError when an answer is missing."""
    found: dict[int, Assessment | str] = {}
    for row in assessments.to_pylist():
        found[row["candidate"]] = row["error"] or _decoded(row["assessment"])
    if len(found) != len(candidates):
        raise JobFailedError(f"{len(found)} of {len(candidates)} candidates came back")
    judged = [
        Verdict(candidate, None, outcome) if isinstance(outcome, str) else Verdict(candidate, outcome, "")
        for candidate, outcome in zip(candidates, (found[n] for n in range(len(candidates))), strict=True)
    ]
    ordered = sorted(judged, key=lambda verdict: _rank(verdict.assessment))
    return [_with_reason(verdict, ordered[0]) for verdict in ordered]


def _decoded(text: str) -> Assessment:
    fields = json.loads(text)
    first, second, third = (Spread(**each) for each in fields.pop("spreads"))
    return Assessment(spreads=(first, second, third), **fields)


CRITERIA = (
    "partitions that lose their majority with one failure domain",
    "partitions that lose their majority with one node",
    "replicas max - min",
    "primaries max - min",
    "replicas that move",
)


def _rank(found: Assessment | None) -> tuple[int, ...]:
    """0 where a candidate can be placed, then CRITERIA in order. A difference of one is no unevenness: shares
    are rarely whole numbers."""
    if found is None:
        return (1,)
    return (
        0,
        found.lost_to_a_domain or 0,
        found.lost_to_a_node,
        max(found.spreads[0].max_min, 1),
        max(found.spreads[2].max_min, 1),
        found.moved,
    )


def _with_reason(verdict: Verdict, best: Verdict) -> Verdict:
    if verdict.assessment is None:
        return Verdict(verdict.candidate, None, f"cannot be placed: {verdict.reason}")
    mine, least = _rank(verdict.assessment)[1:], _rank(best.assessment)[1:]
    if verdict is best:
        told = ", ".join(f"{value} {name}" for name, value in zip(CRITERIA, mine, strict=True))
        return Verdict(verdict.candidate, verdict.assessment, f"best: {told}")
    for name, value, lower in zip(CRITERIA, mine, least, strict=True):
        if value != lower:
            return Verdict(verdict.candidate, verdict.assessment, f"{value} {name}, the best has {lower}")
    return Verdict(verdict.candidate, verdict.assessment, "as good as the best")
