"""Analysis of placements without a cluster: ``zonectl whatif`` compares candidate topologies, ``skew`` shows
the balance of a placement, ``transfers`` the moves of a change, ``copies`` the copies that disagree.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from app.cli.exits import ExitCode, UsageError
from app.cli.options import option
from app.cli.output import print_rows, print_table, say, say_json
from app.cli.place import (
    Computation,
    PlacedNode,
    answered,
    nodes_of,
    placement_request,
    read_copies,
    read_json,
    read_previous,
    read_replicas,
    read_sizes,
    warn_of_surplus,
)
from catalog.core.zone import DistributionAlgorithm
from rebalance.kernels.transfers import NOBODY
from rebalance.ports.placement import PreviousPlacement
from spark import copies as copy_comparison
from spark import plan_transfers
from spark import skew as placement_skew
from spark.plan_transfers import TransferPlan
from spark.skew import Skew
from spark.what_if import Candidate, Verdict, analysis

AssignmentsOption = Annotated[
    Path, option("--assignments", "Current placement: the JSON output of `zonectl place`.", "FILE")
]


def whatif(
    *,
    assignments: AssignmentsOption,
    candidates: Annotated[
        Path,
        option(
            "--candidates",
            'A JSON list of {"name", "add", "remove", "nodes", "replicas", "consensus"}.',
            "FILE",
        ),
    ],
    algorithm: Annotated[
        DistributionAlgorithm, option("--algorithm", "Algorithm that places the candidates.")
    ] = DistributionAlgorithm.BALANCED,
    computation: Computation,
) -> int:
    """Compare candidate topologies: the replicas each moves, its balance, and the failures it survives.

    A candidate lists its differences from the current placement: nodes to `add`
    (names, or objects with weight and domain), names to `remove`, another number
    of `replicas` or `consensus`; or all `nodes`. The best candidate is printed
    first, each with the reason for its place.

    \b
    Examples:
      zonectl place --nodes n.json --partitions 1024 --replicas 3 --format json > now.json
      echo '[{"name": "one more", "add": ["n9"]}, {"name": "two fewer", "remove": ["n1", "n2"]}]' > c.json
      zonectl whatif --assignments now.json --candidates c.json
      zonectl whatif --assignments now.json --candidates c.json --engine spark --format json

    Exit codes: 0 compared, 1 no candidate can be placed, 64 wrong usage, 130 Ctrl-C.
    """
    spark = computation.spark()
    before = read_previous(assignments)
    compared = analysis(before, _candidates(candidates, before, algorithm.value))
    verdicts, engine = answered(compared, spark)
    if computation.as_json:
        say_json({"engine": engine.value, "candidates": [_verdict_json(one) for one in verdicts]}, indent=2)
    else:
        _print_verdicts(verdicts)
    return ExitCode.OK if any(verdict.assessment for verdict in verdicts) else ExitCode.FAILED


SizesOption = Annotated[
    Path | None,
    option("--sizes", "JSON list of the size of each partition's replica, in bytes.", "FILE"),
]


def skew(
    *,
    assignments: AssignmentsOption,
    keys: Annotated[int, option("--keys", "Also spread N generated keys over the partitions.", "N", min=0)] = 0,
    sizes: SizesOption = None,
    computation: Computation,
) -> None:
    """Show how evenly a placement spreads replicas, voters, primaries, keys and bytes.

    \b
    Examples:
      zonectl skew --assignments now.json
      zonectl skew --assignments now.json --keys 1000000 --format json
      zonectl skew --assignments now.json --keys 100000000 --engine spark

    Exit codes: 0 success, 64 usage error, 130 interrupted.
    """
    placed = read_previous(assignments)
    known = None if sizes is None else read_sizes(sizes, len(placed.matrix))
    analysis = placement_skew.analysis(placed, keys, known)
    result, _ = answered(analysis, computation.spark())
    if computation.as_json:
        say_json(_skew_document(result, len(placed.matrix)), indent=2)
    else:
        _print_skew(result)


def _skew_document(result: Skew, partitions: int) -> dict[str, Any]:
    nodes = {
        name: {level: int(count[at]) for level, count in result.counts.items()}
        for at, name in enumerate(result.nodes)
    }
    spreads = {
        name: {"max_min": spread.max_min, "stddev": round(spread.stddev, 3)}
        for name, spread in result.spreads().items()
    }
    return {"partitions": partitions, "nodes": nodes, "spread": spreads}


def _print_skew(result: Skew) -> None:
    spreads = result.spreads().values()
    rows = [
        [name, *(str(count[at]) for count in result.counts.values())] for at, name in enumerate(result.nodes)
    ]
    rows.append(["max - min", *(str(spread.max_min) for spread in spreads)])
    rows.append(["std. deviation", *(f"{round(spread.stddev, 3):g}" for spread in spreads)])
    print_rows(["NODE", *(name.upper() for name in result.counts)], rows)


def transfers(
    *,
    before: Annotated[Path, option("--before", "Current placement, as printed by `zonectl place`.", "FILE")],
    after: Annotated[
        Path, option("--after", "Target placement, in the same format or written by hand.", "FILE")
    ],
    sizes: SizesOption = None,
    computation: Computation,
) -> None:
    """Show which replicas and bytes a change of placement copies between nodes.

    The target is validated first: the same number of partitions, no node twice in
    one. Nothing is changed.

    \b
    Examples:
      zonectl place --nodes n.json --partitions 64 --replicas 3 --algorithm balanced --format json > now.json
      zonectl place --nodes more.json --partitions 64 --replicas 3 --algorithm balanced \\
                    --previous now.json --format json > target.json
      zonectl transfers --before now.json --after target.json

    JSON: {"totals": [{"donor", "stealer", "replicas", "bytes"}], "partitions":
    [{"partition", "donor", "stealer", "bytes"}]}; donor null: copied within the
    group, stealer null: the replica is removed.

    Exit codes: 0 success, 64 usage error or invalid target, 130 interrupted.
    """
    now, target = read_previous(before), read_previous(after)
    known = None if sizes is None else read_sizes(sizes, len(now.matrix))
    try:
        analysis = plan_transfers.analysis(now, target, known)
    except ValueError as error:
        raise UsageError(f"{after} is not a target for {before}: {error}") from error
    plan, _ = answered(analysis, computation.spark())
    if computation.as_json:
        _print_transfers_json(plan)
    else:
        _print_transfers(plan, sizes_known=known is not None)


def _print_transfers_json(plan: TransferPlan) -> None:
    """Print one transfer on a line, so that a large answer can be read as a stream."""
    names: list[str | None] = [*plan.nodes, None]  # NOBODY is -1, the last one
    total = plan.total
    columns = (total.donor, total.stealer, total.replicas, total.size)
    totals = [
        {"donor": names[donor], "stealer": names[stealer], "replicas": count, "bytes": size}
        for donor, stealer, count, size in zip(*(column.tolist() for column in columns), strict=True)
    ]
    write = sys.stdout.write
    write(f'{{"totals": {json.dumps(totals, ensure_ascii=False)},\n"partitions": [')
    transfers = plan.single
    fields = (transfers.partition, transfers.donor, transfers.stealer, transfers.size)
    rows = zip(*(column.tolist() for column in fields), strict=True)
    for number, (partition, donor, stealer, size) in enumerate(rows):
        row = {"partition": partition, "donor": names[donor], "stealer": names[stealer], "bytes": size}
        write(f"{',' if number else ''}\n{json.dumps(row, ensure_ascii=False)}")
    write("\n]}\n")


def _print_transfers(plan: TransferPlan, *, sizes_known: bool) -> None:
    total = plan.total
    names = [*plan.nodes, "-"]
    columns: dict[str, Any] = {
        "DONOR": lambda at: names[total.donor[at]],
        "STEALER": lambda at: names[total.stealer[at]],
        "REPLICAS": lambda at: total.replicas[at],
    }
    if sizes_known:
        columns["BYTES"] = lambda at: total.size[at]
    print_table(range(len(total.donor)), columns)
    size_text = f", {int(total.size.sum())} bytes" if sizes_known else ""
    copied = int(total.replicas[total.stealer != NOBODY].sum())
    say(f"{copied} replicas are copied{size_text}; nothing was changed.")


def copies(
    *,
    path: Annotated[
        Path,
        option(
            "--copies", 'JSON list of {"zone", "partition", "node", "state", "update_counter", "size"}.', "FILE"
        ),
    ],
    computation: Computation,
) -> int:
    """Compare update counters and sizes of the OWNING copies of each partition.

    \b
    Example:
      zonectl copies --copies full-map.json

    Exit codes: 0 all copies agree, 1 some differ, 64 usage error, 130 interrupted.
    """
    listed = read_copies(path)
    disagreements, _ = answered(copy_comparison.analysis(listed), computation.spark())
    if computation.as_json:
        say_json({"disagreements": [asdict(disagreement) for disagreement in disagreements]}, indent=2)
    else:
        for disagreement in disagreements:
            say(f"warning: {disagreement.describe()}")
        compared = len({(copy.zone, copy.partition) for copy in listed})
        say(f"{len(disagreements)} of {compared} partitions have OWNING copies that differ.")
    return ExitCode.FAILED if disagreements else ExitCode.OK


COLUMNS = ("CANDIDATE", "NODES", "MOVED", "REPLICAS", "VOTERS", "PRIMARIES", "LOST_TO_NODE", "LOST_TO_DOMAIN")
FIELDS = frozenset({"name", "add", "remove", "nodes", "replicas", "consensus"})


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
