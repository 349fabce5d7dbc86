"""``zonectl whatif``: candidate topologies compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption
from app.cli.place import EngineChoice, PlaceFormat, spark_settings
from catalog.core.zone import DistributionAlgorithm

AssignmentsOption = Annotated[
    Path,
    typer.Option(
        "--assignments", metavar="FILE", help="Current placement: the JSON output of `zonectl place`."
    ),
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
        DistributionAlgorithm, typer.Option("--algorithm", help="Algorithm that places the candidates.")
    ] = DistributionAlgorithm.BALANCED,
    engine: Annotated[
        EngineChoice,
        typer.Option(
            "--engine", help="Where it is computed; `spark` starts a Spark driver (about ten seconds)."
        ),
    ] = EngineChoice.LOCAL,
    form: Annotated[PlaceFormat, typer.Option("--format", help="Output format of the verdicts.")] = (
        PlaceFormat.TABLE
    ),
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
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
    from app.cli.whatif_run import compare

    spark = spark_settings(engine, spark_master, data_dir)
    return compare(assignments, candidates, algorithm.value, spark, as_json=form is PlaceFormat.JSON)
