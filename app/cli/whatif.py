"""``zonectl whatif``: candidate topologies compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.place import Computation
from catalog.core.zone import DistributionAlgorithm

AssignmentsOption = Annotated[
    Path,
    typer.Option(
        "--assignments", metavar="FILE", help="Current placement: the JSON output of `zonectl place`."
    ),
]


def whatif(
    *,
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
    from app.cli.whatif_run import compare

    spark = computation.spark()
    return compare(assignments, candidates, algorithm.value, spark, as_json=computation.as_json)
