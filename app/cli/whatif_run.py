"""What ``zonectl whatif`` does once its options are read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.cli.exits import ExitCode, UsageError
from app.cli.output import print_rows
from app.cli.place import answered
from app.cli.placement_files import (
    PlacedNode,
    nodes_of,
    placement_request,
    read_json,
    read_previous,
    read_replicas,
    warn_of_surplus,
)
from app.cli.say import say, say_json
from app.configuration.settings import Settings
from rebalance.ports.placement import PreviousPlacement
from spark.what_if import Candidate, Verdict, analysis

COLUMNS = ("CANDIDATE", "NODES", "MOVED", "REPLICAS", "VOTERS", "PRIMARIES", "LOST_TO_NODE", "LOST_TO_DOMAIN")
FIELDS = frozenset({"name", "add", "remove", "nodes", "replicas", "consensus"})


def compare(
    assignments: Path, candidates: Path, algorithm: str, spark: Settings | None, *, as_json: bool
) -> int:
    """``spark`` None: in this process. Raises CliError."""
    before = read_previous(assignments)
    verdicts, engine = answered(analysis(before, _candidates(candidates, before, algorithm)), spark)
    if as_json:
        say_json({"engine": engine.value, "candidates": [_verdict_json(one) for one in verdicts]}, indent=2)
    else:
        _print_verdicts(verdicts)
    return ExitCode.OK if any(verdict.assessment for verdict in verdicts) else ExitCode.FAILED


def _candidates(path: Path, before: PreviousPlacement, algorithm: str) -> list[Candidate]:
    document = read_json(path)
    if not isinstance(document, list) or not document:
        raise UsageError(f"{path}: expected a JSON list of at least one candidate")
    return [_candidate(one, f"{path}: candidate {at}", before, algorithm) for at, one in enumerate(document, 1)]


def _candidate(candidate: object, where: str, before: PreviousPlacement, algorithm: str) -> Candidate:
    if not isinstance(candidate, dict) or not isinstance(candidate.get("name"), str):
        raise UsageError(f'{where}: expected an object with a "name"')
    unknown = set(candidate) - FIELDS
    if unknown:
        raise UsageError(f"{where}: {min(unknown)!r} is not known; there are {', '.join(sorted(FIELDS))}")
    where = f"{where} ({candidate['name']})"
    nodes = _nodes(candidate, where, before)
    width = before.matrix.shape[1]
    replicas = read_replicas(str(candidate.get("replicas", width)), f"{where}: replicas")
    consensus = candidate.get("consensus", min(before.consensus, replicas))
    if isinstance(consensus, bool) or not isinstance(consensus, int) or consensus < 0:
        raise UsageError(f"{where}: consensus: a number from 0 on, not {consensus!r}")
    if not nodes:
        raise UsageError(f"{where}: no node is left")
    warn_of_surplus(len(nodes), replicas, consensus if "consensus" in candidate else None, where)
    request = placement_request(nodes, len(before.matrix), replicas, consensus, algorithm, where)
    return Candidate(candidate["name"], request)


def _nodes(candidate: dict[str, Any], where: str, before: PreviousPlacement) -> list[PlacedNode]:
    if "nodes" in candidate:
        return nodes_of(candidate["nodes"], f"{where}: nodes")
    remove = candidate.get("remove", [])
    if not isinstance(remove, list) or not set(map(str, remove)) <= set(before.nodes):
        unknown = sorted(set(map(str, remove)) - set(before.nodes)) if isinstance(remove, list) else [remove]
        raise UsageError(f"{where}: remove: {unknown[0]!r} is not a node of the placement")
    kept = [PlacedNode(name) for name in before.nodes if name not in remove]
    return kept + nodes_of(candidate.get("add", []), f"{where}: add")


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    assessment = None if verdict.assessment is None else asdict(verdict.assessment)
    return {"name": verdict.candidate.name, "reason": verdict.reason, "assessment": assessment}


def _print_verdicts(verdicts: list[Verdict]) -> None:
    rows = []
    for verdict in verdicts:
        figures, assessment = [""] * (len(COLUMNS) - 2), verdict.assessment
        if assessment is not None:
            spreads = [f"{spread.max_min} ({spread.stddev:.2f})" for spread in assessment.spreads]
            domain = "" if assessment.lost_to_a_domain is None else str(assessment.lost_to_a_domain)
            figures = [str(assessment.moved), *spreads, str(assessment.lost_to_a_node), domain]
        rows.append([verdict.candidate.name, str(len(verdict.candidate.request.nodes)), *figures])
    print_rows(COLUMNS, rows)
    say("REPLICAS, VOTERS, PRIMARIES: max - min (standard deviation) over the nodes.")
    for verdict in verdicts:
        say(f"{verdict.candidate.name}: {verdict.reason}")
