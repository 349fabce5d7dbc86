"""What ``zonectl place`` does once its options are read."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.output import print_rows
from app.cli.placement_files import placement_request, read_nodes, read_previous, read_replicas, warn_of_surplus
from app.configuration.settings import Settings
from rebalance.kernels.assessment import held, level_counts, renumbered
from rebalance.ports.placement import Engine, EngineState, PlacementRequest, PlacementResult
from spark.analysis import Analysis
from spark.batch import BALANCED, place_locally
from spark.errors import PlacementError

if TYPE_CHECKING:
    from spark.engine import SparkPlacementEngine

SPARK_WAIT_S = 120.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options as given."""

    nodes: Path
    partitions: int
    replicas: str
    consensus: int | None
    algorithm: str
    previous: Path | None


def place_and_print(wanted: Wanted, spark: Settings | None, *, as_json: bool) -> int:
    """``spark`` None: in this process. Raises CliError."""
    request = _request(wanted)
    try:
        result = place_locally([request])[0] if spark is None else asyncio.run(_on_spark(request, spark))
    except PlacementError as error:
        raise CliError(ExitCode.FAILED, f"cannot be placed: {error.reason}") from error
    if as_json:
        _print_json(result)
    else:
        _print_table(request, result)
    return ExitCode.OK


def _request(wanted: Wanted) -> PlacementRequest:
    nodes = read_nodes(wanted.nodes)
    if wanted.previous is not None and wanted.algorithm != BALANCED:
        raise UsageError("--previous is for --algorithm balanced: rendezvous does not look at what was before")
    replicas = read_replicas(wanted.replicas)
    consensus = replicas if wanted.consensus is None else wanted.consensus
    warn_of_surplus(len(nodes), replicas, wanted.consensus)
    where = str(wanted.nodes)
    request = placement_request(nodes, wanted.partitions, replicas, consensus, wanted.algorithm, where)
    previous = None if wanted.previous is None else read_previous(wanted.previous, wanted.partitions)
    if wanted.algorithm != BALANCED:
        request = replace(request, weights=(), domains=())
    return replace(request, previous=previous)


@asynccontextmanager
async def spark_engine(settings: Settings) -> AsyncIterator[SparkPlacementEngine]:
    """A Spark driver of this command's own."""
    from spark.engine import SparkPlacementEngine
    from spark.supervisor import DriverConfig

    with tempfile.TemporaryDirectory(prefix="zonekeeper-place-") as scratch:
        engine = SparkPlacementEngine(DriverConfig(settings.spark_master, Path(scratch)), SPARK_WAIT_S)
        await engine.start()
        try:
            yield engine
            if engine.status().state is not EngineState.READY:
                print(f"zonectl: Spark was not ready: {engine.status().message}", file=sys.stderr)
        finally:
            await engine.close()


def answered(analysis: Analysis[T], spark: Settings | None) -> tuple[T, Engine]:
    """The answer and where it was computed. ``spark`` None: in this process."""
    if spark is None:
        return analysis.here(), Engine.LOCAL

    async def ask(settings: Settings) -> tuple[T, Engine]:
        async with spark_engine(settings) as engine:
            return await engine.answer(analysis)

    return asyncio.run(ask(spark))


async def _on_spark(request: PlacementRequest, settings: Settings) -> PlacementResult:
    async with spark_engine(settings) as engine:
        (result,) = await engine.place([request])
    return result


def _print_json(result: PlacementResult) -> None:
    """A partition a line, so that a large answer streams."""
    cells = [
        [json.dumps({"node": name, "peer": peer}, ensure_ascii=False) for name in result.nodes]
        for peer in (False, True)
    ]
    voters = max(1, result.consensus)
    roles = [cells[column < voters] for column in range(result.matrix.shape[1])]
    write = sys.stdout.write
    write('{"assignments": [')
    for number, row in enumerate(result.matrix.tolist()):
        line = ", ".join(role[node] for role, node in zip(roles, row, strict=True))
        write(f"{',' if number else ''}\n[{line}]")
    write("\n]}\n" if len(result.matrix) else "]}\n")


def _print_table(request: PlacementRequest, result: PlacementResult) -> None:
    """What each node holds, the spread, and with a previous placement what moves."""
    matrix = result.matrix
    levels = ("REPLICAS", "VOTERS", "PRIMARIES")
    counts = level_counts(len(result.nodes), matrix, max(1, result.consensus))
    moved = _moved_to(request, result)
    columns = ["NODE", *levels, *(["MOVED_IN"] if moved is not None else [])]
    every = [*counts, *([moved] if moved is not None else [])]
    rows: list[Sequence[str]] = [
        [name, *(str(count[at]) for count in every)] for at, name in enumerate(result.nodes)
    ]
    if result.nodes:
        spread = [str(int(np.ptp(count))) for count in counts]
        rows.append(["max - min", *spread, *([""] if moved is not None else [])])
    print_rows(columns, rows)
    if moved is not None:
        print(f"{int(moved.sum())} of {matrix.size} replicas move.")


def _moved_to(request: PlacementRequest, result: PlacementResult) -> npt.NDArray[np.int64] | None:
    """Replicas that each node gets and did not hold: int64 [N]."""
    before = request.previous
    if before is None:
        return None
    old = renumbered(before.nodes, before.matrix, result.nodes)
    moved = result.matrix[~held(result.matrix, old)]
    return np.bincount(moved, minlength=len(result.nodes))
