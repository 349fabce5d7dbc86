"""``zonectl sql``: run a script of statements, and with ``--wait`` follow the data to where it belongs.

A script that is too large for one request is cut into several that have the same effect one after another. It
is parsed completely before anything runs, as the server would do. Only the server can check queries, so a
script with one is never cut.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.address import find_address
from app.cli.client import ApiClient
from app.cli.connection import RowsApi
from app.cli.exits import CliError, ExitCode
from app.cli.follow import follow, touched_zones
from app.cli.options import OutputFormat, ReasonOption, TimeoutOption, WaitOption, option
from app.cli.output import print_results
from app.cli.problems import ProblemDocument, ProblemError, render_problem
from app.cli.sql_source import Script, read_script

if TYPE_CHECKING:
    from app.contract.statements import StatementOutcome


SMALL_CHARS = 8_000
"""Characters below which no script is too large; larger ones are counted, which takes the parser."""


@dataclass(frozen=True, slots=True)
class ScriptPart:
    """A part of a script, with the statements, lines and columns before it."""

    text: str
    statements_before: int = 0
    lines_before: int = 0
    columns_before: int = 0

    def in_script(self, problem: ProblemDocument) -> ProblemDocument:
        """The problem with positions and numbers in the whole script."""
        line, column, statement = problem.line, problem.column, problem.statement
        if line is not None and column is not None:
            column += self.columns_before if line == 1 else 0
            line += self.lines_before
        if statement is not None:
            statement += self.statements_before
        return replace(problem, line=line, column=column, statement=statement)


def parts_of(script: Script) -> Sequence[ScriptPart]:
    """Cut a script into parts; one part if it can be sent as it is.

    Raises ProblemError for one that is invalid and too large to be sent, CliError for one that cannot be cut.
    """
    if len(script.text) < SMALL_CHARS:
        return (ScriptPart(script.text),)
    from parser.text import DEFAULT_LIMITS as LIMITS

    statements, has_query = _read(script)
    tokens = sum(statement.tokens for statement in statements)
    size = len(script.text.encode(errors="surrogatepass"))
    if (
        size <= LIMITS.text_bytes_max
        and len(statements) <= LIMITS.statements_max
        and tokens <= LIMITS.tokens_max
    ):
        return (ScriptPart(script.text),)
    most = (
        f"a server reads {LIMITS.text_bytes_max} bytes, {LIMITS.statements_max} statements and "
        f"{LIMITS.tokens_max} tokens at once, the script has {size}, {len(statements)} and {tokens}"
    )
    if has_query:
        message = f"{script.name}: {most}; it holds queries, which are checked before anything runs: cut it"
        raise CliError(ExitCode.FAILED, message)
    return _cut(script, statements, most)


@dataclass(frozen=True, slots=True)
class _Statement:
    start: int
    end: int
    tokens: int
    line: int
    column: int


def _read(script: Script) -> tuple[list[_Statement], bool]:
    """The statements, and True if one is a query. Raises ProblemError for an invalid script."""
    from app.requests.errors import problem
    from catalog.core.errors import ParseError
    from parser.queries import Query, read_each
    from parser.text import OWN_TEXT

    statements: list[_Statement] = []
    has_query = False
    try:
        for read in read_each(script.text, OWN_TEXT):
            if isinstance(read.statement, ParseError):
                raise read.statement
            has_query |= isinstance(read.statement, Query)
            start, end = read.cut.offset, read.cut.offset + len(read.cut.text)
            place = read.lines.position(start)
            statements.append(_Statement(start, end, len(read.cut.tokens), place.line, place.column))
    except ParseError as error:
        raise ProblemError(ProblemDocument.from_body(error.kind.http_status, problem(error))) from error
    return statements, has_query


def _cut(script: Script, statements: Sequence[_Statement], most: str) -> Sequence[ScriptPart]:
    from parser.text import DEFAULT_LIMITS as LIMITS

    groups: list[list[_Statement]] = []
    tokens = size = 0
    for statement in statements:
        its_size = len(script.text[statement.start : statement.end].encode()) + 1
        if its_size > LIMITS.text_bytes_max or statement.tokens > LIMITS.tokens_max:
            message = f"{script.name}:{statement.line}:{statement.column}: one statement is too large: {most}"
            raise CliError(ExitCode.FAILED, message)
        tokens, size = tokens + statement.tokens, size + its_size
        full = bool(groups) and len(groups[-1]) == LIMITS.statements_max
        if not groups or full or tokens > LIMITS.tokens_max or size > LIMITS.text_bytes_max:
            groups.append([])
            tokens, size = statement.tokens, its_size
        groups[-1].append(statement)
    parts: list[ScriptPart] = []
    before = 0
    for group in groups:
        first = group[0]
        text = script.text[first.start : group[-1].end]
        parts.append(ScriptPart(text, before, first.line - 1, first.column - 1))
        before += len(group)
    return parts


def sql(
    api: RowsApi,
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
            if results or api.output is OutputFormat.JSON:
                print_results(results, api.output)
            sys.stdout.flush()
            text = render_problem(problem, api.output, script)
            raise CliError(error.exit_code, text + _progress(problem) * api.is_table) from error
        print_results(results, api.output)
        if not wait:
            return ExitCode.OK
        sys.stdout.flush()
        return follow(client, touched_zones(results), timeout_s=timeout).exit_code


def _numbered(results: Sequence[StatementOutcome], part: ScriptPart) -> list[StatementOutcome]:
    """The results with their numbers in the whole script."""
    return [{**result, "n": result["n"] + part.statements_before} for result in results]


def _progress(problem: ProblemDocument) -> str:
    """Line with how much of a script was run; none of one that is invalid, which is parsed before it runs."""
    done = len(problem.results)
    if problem.statement is None or (not done and problem.statement == 1):
        return ""
    if not done:
        return f"\nStatement {problem.statement} is invalid; no statement was run."
    return f"\nStatement {problem.statement} was refused; {done} before it applied, those after it not run."
