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
    domains_of,
    nodes_of,
    read_json,
    read_previous,
    read_replicas,
    warn_of_surplus,
)
from app.cli.say import say, say_json
from app.configuration.settings import Settings
from catalog.core.zone import ZoneId
from rebalance.ports.placement import PlacementRequest, PreviousPlacement
from spark.what_if import Candidate, Verdict, analysis

FIELDS = frozenset({"name", "add", "remove", "nodes", "replicas", "consensus"})


def compare(
    assignments: Path, candidates: Path, algorithm: str, spark: Settings | None, *, as_json: bool
) -> int:
    """``spark`` None: in this process. Raises CliError."""
    before = read_previous(assignments)
    asked = _candidates(candidates, before, algorithm)
    found, engine = answered(analysis(before, asked), spark)
    if as_json:
        say_json({"engine": engine.value, "candidates": [_told(each) for each in found]}, indent=2)
    else:
        _print_verdicts(found)
    return ExitCode.OK if any(each.assessment for each in found) else ExitCode.FAILED


def _candidates(path: Path, before: PreviousPlacement, algorithm: str) -> list[Candidate]:
    found = read_json(path)
    if not isinstance(found, list) or not found:
        raise UsageError(f"{path}: expected a JSON list of at least one candidate")
    return [_candidate(each, f"{path}: candidate {at}", before, algorithm) for at, each in enumerate(found, 1)]


def _candidate(found: object, where: str, before: PreviousPlacement, algorithm: str) -> Candidate:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise UsageError(f'{where}: expected an object with a "name"')
    unknown = set(found) - FIELDS
    if unknown:
        raise UsageError(f"{where}: {min(unknown)!r} is not known; there are {', '.join(sorted(FIELDS))}")
    where = f"{where} ({found['name']})"
    nodes = _nodes(found, where, before)
    width = before.matrix.shape[1]
    replicas = read_replicas(str(found.get("replicas", width)), f"{where}: replicas")
    consensus = found.get("consensus", min(before.consensus, replicas))
    if isinstance(consensus, bool) or not isinstance(consensus, int) or consensus < 0:
        raise UsageError(f"{where}: consensus: a number from 0 on, not {consensus!r}")
    if not nodes:
        raise UsageError(f"{where}: no node is left")
    warn_of_surplus(len(nodes), replicas, consensus if "consensus" in found else None, where)
    request = PlacementRequest(
        ZoneId(0),
        tuple(node.name for node in nodes),
        len(before.matrix),
        replicas,
        consensus,
        algorithm,
        weights=tuple(node.weight for node in nodes),
        domains=domains_of(nodes, where),
    )
    return Candidate(found["name"], request)


def _nodes(found: dict[str, Any], where: str, before: PreviousPlacement) -> list[PlacedNode]:
    if "nodes" in found:
        return nodes_of(found["nodes"], f"{where}: nodes")
    remove = found.get("remove", [])
    if not isinstance(remove, list) or not set(map(str, remove)) <= set(before.nodes):
        strange = sorted(set(map(str, remove)) - set(before.nodes)) if isinstance(remove, list) else [remove]
        raise UsageError(f"{where}: remove: {strange[0]!r} is not a node of the placement")
    kept = [PlacedNode(name) for name in before.nodes if name not in remove]
    return kept + nodes_of(found.get("add", []), f"{where}: add")


def _told(verdict: Verdict) -> dict[str, Any]:
    found = None if verdict.assessment is None else asdict(verdict.assessment)
    return {"name": verdict.candidate.name, "reason": verdict.reason, "assessment": found}


def _print_verdicts(found: list[Verdict]) -> None:
    columns = (
        "CANDIDATE",
        "NODES",
        "MOVED",
        "REPLICAS",
        "VOTERS",
        "PRIMARIES",
        "LOST_TO_NODE",
        "LOST_TO_DOMAIN",
    )
    rows = []
    for verdict in found:
        seen = verdict.assessment
        figures = [""] * 6
        if seen is not None:
            spreads = [f"{each.max_min} ({each.stddev:.2f})" for each in seen.spreads]
            domain = "" if seen.lost_to_a_domain is None else str(seen.lost_to_a_domain)
            figures = [str(seen.moved), *spreads, str(seen.lost_to_a_node), domain]
        rows.append([verdict.candidate.name, str(len(verdict.candidate.request.nodes)), *figures])
    print_rows(columns, rows)
    say("REPLICAS, VOTERS, PRIMARIES: max - min (standard deviation) over the nodes.")
    for verdict in found:
        say(f"{verdict.candidate.name}: {verdict.reason}")
