"""``zonectl skew``, ``transfers`` and ``copies``: what a placement holds, what a change moves, what
disagrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption, make_settings
from app.cli.place import EngineChoice, PlaceFormat
from app.cli.whatif import AssignmentsOption

if TYPE_CHECKING:
    from app.configuration.settings import Settings

EngineOption = Annotated[
    EngineChoice,
    typer.Option("--engine", help="`spark` starts a Spark driver (about ten seconds); same answer."),
]
FormatOption = Annotated[PlaceFormat, typer.Option("--format", help="How the figures are printed.")]
SizesOption = Annotated[
    Path | None,
    typer.Option("--sizes", metavar="FILE", help="A JSON list: bytes of a copy of each partition."),
]


def skew(
    assignments: AssignmentsOption,
    keys: Annotated[
        int,
        typer.Option("--keys", min=0, metavar="N", help="Also spread N generated keys over the partitions."),
    ] = 0,
    sizes: SizesOption = None,
    engine: EngineOption = EngineChoice.LOCAL,
    form: FormatOption = PlaceFormat.TABLE,
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show how evenly a placement spreads replicas, voters, primaries, keys and bytes over its nodes.

    \b
    Examples:
      zonectl skew --assignments now.json
      zonectl skew --assignments now.json --keys 1000000 --format json
      zonectl skew --assignments now.json --keys 100000000 --engine spark

    Exit codes: 0 shown, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.analysis_run import show_skew

    spark = _spark(engine, spark_master, data_dir)
    return show_skew(assignments, keys, sizes, spark, as_json=form is PlaceFormat.JSON)


def transfers(
    before: Annotated[
        Path, typer.Option("--before", metavar="FILE", help="The placement as it is: JSON of `zonectl place`.")
    ],
    after: Annotated[
        Path,
        typer.Option(
            "--after", metavar="FILE", help="The target: JSON of `zonectl place`, or written by hand."
        ),
    ],
    sizes: SizesOption = None,
    engine: EngineOption = EngineChoice.LOCAL,
    form: FormatOption = PlaceFormat.TABLE,
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show what a change of placement moves: from which donor to which stealer, replicas and bytes.

    A target may be written by hand; it is checked first: as many partitions, no
    node twice in one. Nothing is changed by this.

    \b
    Examples:
      zonectl place --nodes n.json --partitions 64 --replicas 3 --algorithm balanced --format json > now.json
      zonectl place --nodes more.json --partitions 64 --replicas 3 --algorithm balanced \\
                    --previous now.json --format json > target.json
      zonectl transfers --before now.json --after target.json

    JSON: {"totals": [{"donor", "stealer", "replicas", "bytes"}], "partitions":
    [{"partition", "donor", "stealer", "bytes"}]}; donor null: copied within the
    group, stealer null: the copy ends.

    Exit codes: 0 shown, 64 wrong usage or a target that is none, 130 Ctrl-C.
    """
    from app.cli.analysis_run import show_transfers

    spark = _spark(engine, spark_master, data_dir)
    return show_transfers(before, after, sizes, spark, as_json=form is PlaceFormat.JSON)


def copies(
    found: Annotated[
        Path,
        typer.Option(
            "--copies",
            metavar="FILE",
            help='A JSON list of {"zone", "partition", "node", "state", "update_counter", "size"}.',
        ),
    ],
    engine: EngineOption = EngineChoice.LOCAL,
    form: FormatOption = PlaceFormat.TABLE,
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Compare the OWNING copies of each partition: update counters and sizes should be the same.

    \b
    Example:
      zonectl copies --copies full-map.json

    Exit codes: 0 all agree, 1 some do not, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.analysis_run import show_copies

    return show_copies(found, _spark(engine, spark_master, data_dir), as_json=form is PlaceFormat.JSON)


def _spark(engine: EngineChoice, master: str | None, data_dir: Path) -> Settings | None:
    if engine is not EngineChoice.SPARK:
        return None
    return make_settings(spark_master=master, data_dir=data_dir)
