"""``zonectl sql``: run a script of statements, and with ``--wait`` follow the data to where it belongs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.address import find_address
from app.cli.client import ApiClient
from app.cli.connection import Api, client_command
from app.cli.exits import CliError, ExitCode
from app.cli.follow import follow, touched_zones
from app.cli.options import OutputFormat, ReasonOption, TimeoutOption, WaitOption, option
from app.cli.output import print_results
from app.cli.problem_document import ProblemDocument
from app.cli.problems import render_problem
from app.cli.request_errors import ProblemError
from app.cli.script_parts import ScriptPart, parts_of
from app.cli.sql_source import read_script

if TYPE_CHECKING:
    from app.contract.statements import StatementOutcome

if TYPE_CHECKING:
    pass


@client_command
def sql(
    api: Api,
    source: Annotated[
        str | None, typer.Argument(metavar="[-]", help="`-` reads the script from stdin.", show_default=False)
    ] = None,
    execute: Annotated[str | None, option("-e --execute", "The script itself.", "SQL")] = None,
    file: Annotated[Path | None, option("-f --file", "File that holds the script.", "FILE")] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> int:
    """Run SQL statements: CREATE, ALTER and DROP ZONE; SHOW, SELECT and EXPLAIN.

    A script is parsed completely before anything runs. If a statement is refused,
    those before it stay applied, those after it do not run, and the error names
    file, line and column.

    \b
    Examples:
      zonectl sql -e "CREATE ZONE orders (PARTITIONS 8, REPLICAS 3)"
      zonectl sql -f examples/quickstart.sql --wait --timeout 60
      echo "DROP ZONE orders" | zonectl sql -
      zonectl sql -e "ALTER ZONE orders SET (REPLICAS 5)" --reason "more readers"
      zonectl sql -e "EXPLAIN ALTER ZONE orders SET (REPLICAS 5)"
      zonectl sql -e "SELECT * FROM system.assignments" --format csv

    Exit codes: 0 success (and converged), 1 refused, 3 server unreachable, 4 timed
    out, 64 usage error, 130 interrupted.
    """
    script = read_script(execute, file, source)
    with ApiClient(find_address(api.url, api.data_dir), reason) as client:
        results: list[StatementOutcome] = []
        part = ScriptPart("")
        try:
            for part in parts_of(script):
                results += _numbered(client.execute(part.text), part)
        except ProblemError as error:
            # Results go to stdout, also those before a refused statement.
            results += _numbered(error.problem.results, part)
            problem = replace(part.in_script(error.problem), results=tuple(results))
            if results or api.form is OutputFormat.JSON:
                print_results(results, api.form)
            sys.stdout.flush()
            text = render_problem(problem, api.form, script)
            raise CliError(error.exit_code, text + _progress(problem) * api.is_table) from error
        print_results(results, api.form)
        if not wait:
            return ExitCode.OK
        sys.stdout.flush()
        return follow(client, touched_zones(results), timeout_s=timeout).exit_code


def _numbered(results: Sequence[StatementOutcome], part: ScriptPart) -> list[StatementOutcome]:
    """With their numbers in the whole script."""
    return [{**result, "n": result["n"] + part.statements_before} for result in results]


def _progress(problem: ProblemDocument) -> str:
    """What of a script is done: nothing when it was not understood, for it is read whole before it runs."""
    done = len(problem.results)
    if problem.statement is None or (not done and problem.statement == 1):
        return ""
    if not done:
        return f"\nStatement {problem.statement} is invalid; no statement was run."
    return f"\nStatement {problem.statement} was refused; {done} before it applied, those after it not run."
