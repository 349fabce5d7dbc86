"""``zonectl whatif``: candidate topologies compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption, make_settings
from app.cli.place import EngineChoice, PlaceFormat
from catalog.core.zone import DistributionAlgorithm

AssignmentsOption = Annotated[
    Path,
    typer.Option("--assignments", metavar="FILE", help="The placement as it is: JSON of `zonectl place`."),
]


def whatif(
    assignments: AssignmentsOption,
    candidates: Annotated[
        Path,
        typer.Option(
            "--candidates",
            metavar="FILE",
            help='A JSON list of {"name", "add", "remove", "nodes", "replicas", "consensus"}.',
        ),
    ],
    algorithm: Annotated[
        DistributionAlgorithm, typer.Option("--algorithm", help="That places the candidates.")
    ] = DistributionAlgorithm.BALANCED,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="`spark` starts a Spark driver (about ten seconds).")
    ] = EngineChoice.LOCAL,
    form: Annotated[PlaceFormat, typer.Option("--format", help="How the verdicts are printed.")] = (
        PlaceFormat.TABLE
    ),
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Compare candidate topologies: what each would move, how even it is, what it survives.

    A candidate names what differs from the placement as it is: nodes to `add`
    (names, or objects with weight and domain), names to `remove`, another number
    of `replicas` or `consensus`; or all `nodes`. The best is first, with the
    reason.

    \b
    Examples:
      zonectl place --nodes n.json --partitions 1024 --replicas 3 --format json > now.json
      echo '[{"name": "one more", "add": ["n9"]}, {"name": "two fewer", "remove": ["n1", "n2"]}]' > c.json
      zonectl whatif --assignments now.json --candidates c.json
      zonectl whatif --assignments now.json --candidates c.json --engine spark --format json

    Exit codes: 0 compared, 1 no candidate can be placed, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.whatif_run import compare

    spark = None
    if engine is EngineChoice.SPARK:
        spark = make_settings(spark_master=spark_master, data_dir=data_dir)
    return compare(assignments, candidates, algorithm.value, spark, as_json=form is PlaceFormat.JSON)
