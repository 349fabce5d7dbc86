"""``zonectl skew``, ``transfers`` and ``copies``: what a placement holds, what a change moves, what
disagrees."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from app.cli.exits import ExitCode, UsageError
from app.cli.options import option
from app.cli.output import print_rows, print_table
from app.cli.place import Computation, answered
from app.cli.placement_files import read_copies, read_previous, read_sizes
from app.cli.say import say, say_json
from app.cli.whatif import AssignmentsOption
from rebalance.kernels.transfers import NOBODY
from spark import copies as copy_comparison
from spark import plan_transfers
from spark import skew as placement_skew
from spark.plan_transfers import TransferPlan
from spark.skew import Skew

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
) -> int:
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
    return ExitCode.OK


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
) -> int:
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
    return ExitCode.OK


def _print_transfers_json(plan: TransferPlan) -> None:
    """A transfer a line, so that a large answer streams."""
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
