"""``zonectl check``: judge a script without a server, against a catalog that is thrown away."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class CheckFormat(StrEnum):
    TEXT = "text"
    JSONL = "jsonl"


def check(
    script: Annotated[str, typer.Argument(metavar="SCRIPT|-", help="A file of statements; `-` reads stdin.")],
    topology: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            envvar="ZONEKEEPER_CHECK_TOPOLOGY",
            metavar="FILE",
            help='The nodes that live: a JSON list of {"name", "attributes", "profiles"}.',
            show_default="the three nodes of `zonectl up`",
        ),
    ] = None,
    form: Annotated[
        CheckFormat, typer.Option("--format", envvar="ZONEKEEPER_CHECK_FORMAT", help="How results are printed.")
    ] = CheckFormat.TEXT,
    continue_on_error: Annotated[
        bool,
        typer.Option(
            "--continue-on-error",
            envvar="ZONEKEEPER_CONTINUE_ON_ERROR",
            help="Judge every statement, also those behind a refused one.",
        ),
    ] = False,
) -> int:
    """Check a script of DDL without a server: every rule of the catalog, nothing of the engine.

    A script is parsed whole first: when a statement does not parse, it alone is
    reported and nothing runs. A refused statement ends the script. With
    --continue-on-error each statement is judged for itself.

    \b
    Examples:
      zonectl check migrations/042_zones.sql
      zonectl check --topology nodes.json --format jsonl --continue-on-error zones.sql
      echo "CREATE ZONE orders (REPLICAS 3)" | zonectl check -

    Exit codes: 0 all are good, 1 at least one is refused, 64 wrong usage.
    """
    from app.cli.check_run import check_script, living_nodes, print_checked
    from app.cli.exits import ExitCode
    from app.cli.sql_source import read_script

    source = read_script(None, Path(script), None)
    nodes = living_nodes(topology)
    good = True
    for statement in check_script(source.text, nodes, continue_on_error=continue_on_error):
        print_checked(statement, source, as_json=form is CheckFormat.JSONL)
        good = good and statement.error is None
    return ExitCode.OK if good else ExitCode.FAILED
