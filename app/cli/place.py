"""``zonectl place``: assignments for a set of nodes, without a cluster."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption, make_settings, option
from app.cli.output import print_rows
from app.cli.placement_files import placement_request, read_nodes, read_previous, read_replicas, warn_of_surplus
from app.cli.say import say
from app.configuration.settings import Settings
from catalog.core.zone import DistributionAlgorithm
from rebalance.kernels.assessment import held, level_counts, renumbered
from rebalance.ports.placement import Engine, EngineState, PlacementError, PlacementRequest, PlacementResult
from spark.analysis import Analysis
from spark.batch import place_locally

if TYPE_CHECKING:
    from spark.placement_engine import SparkPlacementEngine

SPARK_WAIT_S = 120.0
T = TypeVar("T")


class EngineChoice(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class PlaceFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


EngineOption = Annotated[
    EngineChoice, option("--engine", "`spark` starts a Spark driver (about 10 s); same result.")
]
PlaceFormatOption = Annotated[PlaceFormat, option("--format", "Output format.")]


@dataclass(frozen=True, slots=True)
class Computation:
    """Where an answer is computed, and how it is printed."""

    engine: EngineOption = EngineChoice.LOCAL
    form: PlaceFormatOption = PlaceFormat.TABLE
    spark_master: SparkOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR

    @property
    def as_json(self) -> bool:
        return self.form is PlaceFormat.JSON

    def spark(self) -> Settings | None:
        """None: computed in this process. Raises UsageError."""
        from app.configuration.spark_settings import open_spark
        from app.security.protections import leaving

        if self.engine is not EngineChoice.SPARK:
            return None
        settings = make_settings(spark_master=self.spark_master, data_dir=self.data_dir)
        try:
            is_open = leaving(open_spark(settings))
        except ValueError as error:
            raise UsageError(str(error)) from error
        for host, text in sorted(is_open.items()):
            raise UsageError(f"{host}: {text}. Name the file, or compute it here with --engine local")
        return settings


def place(
    *,
    nodes: Annotated[
        Path,
        option("--nodes", 'JSON list of names, or of {"name", "weight", "domain"}; `-` reads stdin.', "FILE"),
    ],
    partitions: Annotated[int, option("--partitions", "Number of partitions.", "P", min=0)],
    replicas: Annotated[str, option("--replicas", "Number of replicas per partition.", "R|ALL")],
    consensus: Annotated[
        int | None,
        option("--consensus", "Number of voters; the other replicas are learners.", "C", min=0, default="all"),
    ] = None,
    algorithm: Annotated[
        DistributionAlgorithm,
        option("--algorithm", "`balanced` is even, and moves little from --previous."),
    ] = DistributionAlgorithm.RENDEZVOUS,
    previous: Annotated[
        Path | None,
        option("--previous", "Previous placement, as printed by this command (balanced only).", "FILE"),
    ] = None,
    computation: Computation,
) -> int:
    """Compute which nodes hold the replicas of each partition.

    `rendezvous` is Ignite's algorithm, bit for bit. `balanced` gives all nodes the
    same number of replicas, voters and primaries, to within one; with --previous
    it moves no more replicas than that requires.

    \b
    Examples:
      zonectl place --nodes nodes.json --partitions 1024 --replicas 3
      zonectl place --nodes nodes.json --partitions 64 --replicas ALL --consensus 3 --format json
      zonectl place --nodes n.json --partitions 64 --replicas 3 --algorithm balanced --format json > before.json
      zonectl place --nodes more.json --partitions 64 --replicas 3 --algorithm balanced --previous before.json

    JSON: {"assignments": [[{"node", "peer"}, ...], ...]}, one partition per line, in
    order of preference.

    Exit codes: 0 placed, 1 cannot be placed, 64 usage error, 130 interrupted.
    """
    if previous is not None and algorithm is not DistributionAlgorithm.BALANCED:
        raise UsageError("--previous is for --algorithm balanced: rendezvous has no memory")
    count = read_replicas(replicas)
    voters = count if consensus is None else consensus
    listed = read_nodes(nodes)
    warn_of_surplus(len(listed), count, consensus)
    request = placement_request(listed, partitions, count, voters, algorithm.value, str(nodes))
    if algorithm is not DistributionAlgorithm.BALANCED:
        request = replace(request, weights=(), domains=())
    if previous is not None:
        request = replace(request, previous=read_previous(previous, partitions))
    spark = computation.spark()
    try:
        result = place_locally([request])[0] if spark is None else asyncio.run(_on_spark(request, spark))
    except PlacementError as error:
        raise CliError(ExitCode.FAILED, f"cannot be placed: {error.reason}") from error
    if computation.as_json:
        _print_json(result)
    else:
        _print_table(request, result)
    return ExitCode.OK


@asynccontextmanager
async def spark_engine(settings: Settings) -> AsyncIterator[SparkPlacementEngine]:
    """A Spark driver of this command's own."""
    from app.configuration.spark_settings import spark_network
    from spark.placement_engine import SparkPlacementEngine
    from spark.supervisor import DriverConfig

    with tempfile.TemporaryDirectory(prefix="zonekeeper-place-") as scratch:
        config = DriverConfig(settings.spark_master, Path(scratch), network=spark_network(settings))
        engine = SparkPlacementEngine(config, SPARK_WAIT_S)
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
    counts = level_counts(len(result.nodes), result.matrix, max(1, result.consensus))
    columns: dict[str, Any] = dict(zip(("REPLICAS", "VOTERS", "PRIMARIES"), counts, strict=True))
    spread = [str(int(np.ptp(count))) for count in counts] if result.nodes else []
    if request.previous is not None:
        # Replicas that each node gets and did not hold.
        old = renumbered(request.previous.nodes, request.previous.matrix, result.nodes)
        moved = result.matrix[~held(result.matrix, old)]
        columns["MOVED_IN"] = np.bincount(moved, minlength=len(result.nodes))
        spread += [""]
    rows = [[name, *(str(count[at]) for count in columns.values())] for at, name in enumerate(result.nodes)]
    print_rows(["NODE", *columns], rows + ([["max - min", *spread]] if result.nodes else []))
    if request.previous is not None:
        say(f"{int(columns['MOVED_IN'].sum())} of {result.matrix.size} replicas move.")
