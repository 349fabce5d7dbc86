"""What ``zonectl skew``, ``transfers`` and ``copies`` do once their options are read."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.cli.exits import ExitCode, UsageError
from app.cli.output import print_rows
from app.cli.place_run import answered
from app.cli.placement_files import read_copies, read_previous, read_sizes
from app.cli.say import say, say_json
from app.configuration.settings import Settings
from rebalance.kernels.transfers import NOBODY
from spark import copies, plan_transfers, skew
from spark.plan_transfers import TransferPlan
from spark.skew import Skew


def show_skew(
    assignments: Path, keys: int, sizes: Path | None, spark: Settings | None, *, as_json: bool
) -> int:
    """``spark`` None: in this process. Raises CliError."""
    placed = read_previous(assignments)
    known = None if sizes is None else read_sizes(sizes, len(placed.matrix))
    found, _ = answered(skew.analysis(placed, keys, known), spark)
    if as_json:
        say_json(_skew_told(found, len(placed.matrix)), indent=2)
    else:
        _print_skew(found)
    return ExitCode.OK


def _skew_told(found: Skew, partitions: int) -> dict[str, Any]:
    nodes = {
        name: {level: int(count[at]) for level, count in found.counts.items()}
        for at, name in enumerate(found.nodes)
    }
    spreads = {
        name: {"max_min": each.max_min, "stddev": round(each.stddev, 3)}
        for name, each in found.spreads().items()
    }
    return {"partitions": partitions, "nodes": nodes, "spread": spreads}


def _print_skew(found: Skew) -> None:
    spreads = found.spreads().values()
    rows = [[name, *(str(count[at]) for count in found.counts.values())] for at, name in enumerate(found.nodes)]
    rows.append(["max - min", *(str(each.max_min) for each in spreads)])
    rows.append(["std. deviation", *(f"{round(each.stddev, 3):g}" for each in spreads)])
    print_rows(["NODE", *(name.upper() for name in found.counts)], rows)


def show_transfers(
    before: Path, after: Path, sizes: Path | None, spark: Settings | None, *, as_json: bool
) -> int:
    now, target = read_previous(before), read_previous(after)
    known = None if sizes is None else read_sizes(sizes, len(now.matrix))
    try:
        analysis = plan_transfers.analysis(now, target, known)
    except ValueError as error:
        raise UsageError(f"{after}: not a target of {before}: {error}") from error
    found, _ = answered(analysis, spark)
    if as_json:
        _print_transfers_json(found)
    else:
        _print_transfers(found, sizes_known=known is not None)
    return ExitCode.OK


def _print_transfers_json(found: TransferPlan) -> None:
    """A transfer a line, so that a large answer streams."""
    total = found.total
    names: list[str | None] = [*found.nodes, None]  # NOBODY is -1, the last one
    totals = [
        {"donor": names[donor], "stealer": names[stealer], "replicas": count, "bytes": size}
        for donor, stealer, count, size in zip(
            *(column.tolist() for column in (total.donor, total.stealer, total.replicas, total.size)),
            strict=True,
        )
    ]
    write = sys.stdout.write
    write(f'{{"totals": {json.dumps(totals, ensure_ascii=False)},\n"partitions": [')
    each = found.each
    columns = (column.tolist() for column in (each.partition, each.donor, each.stealer, each.size))
    for number, (partition, donor, stealer, size) in enumerate(zip(*columns, strict=True)):
        row = {"partition": partition, "donor": names[donor], "stealer": names[stealer], "bytes": size}
        write(f"{',' if number else ''}\n{json.dumps(row, ensure_ascii=False)}")
    write("\n]}\n")


def _print_transfers(found: TransferPlan, *, sizes_known: bool) -> None:
    total = found.total
    names = [*found.nodes, "-"]
    rows = []
    for at, (donor, stealer) in enumerate(zip(total.donor.tolist(), total.stealer.tolist(), strict=True)):
        size = [str(total.size[at])] if sizes_known else []
        rows.append([names[donor], names[stealer], str(total.replicas[at]), *size])
    copied = total.stealer != NOBODY
    print_rows(["DONOR", "STEALER", "REPLICAS", *(["BYTES"] if sizes_known else [])], rows)
    size_text = f", {int(total.size.sum())} bytes" if sizes_known else ""
    say(f"{int(total.replicas[copied].sum())} replicas are copied{size_text}; nothing was changed.")


def show_copies(path: Path, spark: Settings | None, *, as_json: bool) -> int:
    given = read_copies(path)
    found, _ = answered(copies.analysis(given), spark)
    if as_json:
        say_json({"disagreements": [asdict(each) for each in found]}, indent=2)
    else:
        for each in found:
            say(f"warning: {each.describe()}")
        compared = len({(each.zone, each.partition) for each in given})
        say(f"{len(found)} of {compared} partitions have OWNING copies that differ.")
    return ExitCode.FAILED if found else ExitCode.OK
