"""``zonectl place``: assignments for a set of nodes, without a cluster."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption


class Algorithm(StrEnum):
    RENDEZVOUS = "rendezvous"
    BALANCED = "balanced"


class EngineChoice(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class PlaceFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def place(
    nodes: Annotated[
        Path,
        typer.Option(
            "--nodes",
            metavar="FILE",
            help='A JSON list of names, or of {"name", "weight", "domain"}; `-` reads stdin.',
        ),
    ],
    partitions: Annotated[int, typer.Option("--partitions", min=0, metavar="P", help="How many partitions.")],
    replicas: Annotated[str, typer.Option("--replicas", metavar="R|ALL", help="Replicas of each partition.")],
    consensus: Annotated[
        int | None,
        typer.Option(
            "--consensus",
            min=0,
            metavar="C",
            help="How many of them vote; the others learn.",
            show_default="all of them",
        ),
    ] = None,
    algorithm: Annotated[
        Algorithm, typer.Option("--algorithm", help="`balanced` is even, and moves the least from --previous.")
    ] = Algorithm.RENDEZVOUS,
    previous: Annotated[
        Path | None,
        typer.Option("--previous", metavar="FILE", help="JSON that this command printed. Balanced only."),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option("--engine", help="`spark` starts a Spark driver (about ten seconds); same answer."),
    ] = EngineChoice.LOCAL,
    form: Annotated[PlaceFormat, typer.Option("--format", help="`table` counts what each node holds.")] = (
        PlaceFormat.TABLE
    ),
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Compute which nodes hold the replicas of each partition, and print it.

    `rendezvous` is the documents' algorithm, bit for bit; `balanced` gives every
    node as many replicas, voters and primaries as any other, to within one.
    With --previous it moves no more than that needs.

    \b
    Examples:
      zonectl place --nodes nodes.json --partitions 1024 --replicas 3
      zonectl place --nodes nodes.json --partitions 64 --replicas ALL --consensus 3 --format json
      zonectl place --nodes n.json --partitions 64 --replicas 3 --algorithm balanced --format json > before.json
      zonectl place --nodes more.json --partitions 64 --replicas 3 --algorithm balanced --previous before.json

    JSON: {"assignments": [[{"node", "peer"}, ...], ...]}, a partition a line, in preference order.

    Exit codes: 0 placed, 1 it cannot be placed, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.place_run import Wanted, place_and_print

    wanted = Wanted(nodes, partitions, replicas, consensus, algorithm.value, previous)
    spark = None
    if engine is EngineChoice.SPARK:
        from app.cli.options import make_settings

        spark = make_settings(spark_master=spark_master, data_dir=data_dir)
    return place_and_print(wanted, spark, as_json=form is PlaceFormat.JSON)
