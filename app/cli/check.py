"""``zonectl check``: runs a script on a catalog in memory, by the server's own rules (``apply_command``).

Statements are checked, not engines: a statement that the replication engine cannot carry out yet is accepted
here. The module imports no server, no database, no etcd and no Spark, so that it answers at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

from app.cli.exits import ExitCode, UsageError
from app.cli.options import argument, option
from app.cli.output import say, say_json
from app.cli.problems import ProblemDocument, describe_problem
from app.cli.sql_source import Script, read_script
from app.configuration.node_settings import profiles_of
from app.requests.errors import problem
from app.supervision.child_plan import NodeSpec, default_topology, read_topology
from app.supervision.installation_state import UpError
from catalog.core.authorisation import READY_GRANTS
from catalog.core.errors import ParseError, StatementError
from catalog.core.messages import Command
from catalog.core.snapshot import CatalogSnapshot, StatementWarning, Topology, apply_command
from catalog.core.zone import Node
from catalog.filters.json_path import JSON_PATH
from parser.hidden_secrets import hide_secrets
from parser.queries import Ddl, Query, ReadPiece, read_each
from parser.text import OWN_TEXT
from parser.to_command import nothing_found, read_command

NODES_DEFAULT = 3


class CheckFormat(StrEnum):
    TEXT = "text"
    JSONL = "jsonl"


def check(
    script: Annotated[str, argument("SCRIPT|-", "File of statements; `-` reads stdin.")],
    topology: Annotated[
        Path | None,
        option(
            "--topology",
            'Living nodes, as a JSON list of {"name", "attributes", "profiles"}.',
            "FILE",
            default="the three nodes of `zonectl up`",
        ),
    ] = None,
    form: Annotated[CheckFormat, option("--format", "Output format.")] = CheckFormat.TEXT,
    continue_on_error: Annotated[
        bool, option("--continue-on-error", "Check all statements, also those after a refused one.")
    ] = False,
) -> int:
    """Validate a DDL script without a server.

    All rules of the catalog apply, and none of the replication engine. A script is
    parsed completely first: a statement that does not parse is the only one
    reported. A refused statement ends the check. With --continue-on-error every
    statement is checked.

    \b
    Examples:
      zonectl check migrations/042_zones.sql
      zonectl check --topology nodes.json --format jsonl --continue-on-error zones.sql
      echo "CREATE ZONE orders (REPLICAS 3)" | zonectl check -

    Exit codes: 0 all statements are valid, 1 at least one is refused, 64 usage error.
    """
    source = read_script(None, Path(script), None)
    nodes = living_nodes(topology)
    good = True
    for statement in check_script(source.text, nodes, continue_on_error=continue_on_error):
        print_checked(statement, source, as_json=form is CheckFormat.JSONL)
        good = good and statement.error is None
    return ExitCode.OK if good else ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A statement and its effect; ``error`` None means it is valid. ``n`` is its 1-based number in the
    script."""

    n: int
    sql: str
    applied: bool = False
    effect: Mapping[str, Any] | None = None
    error: StatementError | None = None
    warnings: tuple[StatementWarning, ...] = ()

    def to_json(self) -> dict[str, Any]:
        error = self.error
        refusal = error and {
            "name": error.kind.name,
            "code": error.kind.code,
            "sqlstate": error.kind.sqlstate,
            "message": error.message,
            "line": error.line,
            "column": error.column,
        }
        return {
            "n": self.n,
            "sql": self.sql,
            "ok": error is None,
            "applied": self.applied,
            "effect": self.effect,
            "error": refusal,
            "warnings": [{"name": warning.name, "message": warning.message} for warning in self.warnings],
        }


def living_nodes(path: Path | None) -> Topology:
    """The nodes for the check. Raises UsageError for a file that is no topology."""
    try:
        specs = default_topology(NODES_DEFAULT) if path is None else read_topology(path)
    except UpError as error:
        raise UsageError(str(error)) from error
    return tuple(map(_node, specs))


def check_script(text: str, topology: Topology, *, continue_on_error: bool) -> Iterator[CheckedStatement]:
    """Yield the statements in order, up to the first error unless ``continue_on_error``.

    As the server does, a script is read whole first: without ``continue_on_error`` a statement that does not
    parse is the only one that is yielded, for none of the others would run.
    """
    reads = [(n, sql, command) for n, (sql, command) in enumerate(_pieces(text), start=1)]
    if not continue_on_error:
        reads = [read for read in reads if isinstance(read[2], ParseError)][:1] or reads
    snapshot = CatalogSnapshot(grants=READY_GRANTS)
    for n, sql, command in reads:
        if isinstance(command, ParseError):
            yield CheckedStatement(n, sql, error=command)
            continue
        try:
            if not isinstance(command, Command):
                from app.cli.check_query import answer

                yield CheckedStatement(n, sql, effect=answer(command, snapshot, topology))
                continue
            change = apply_command(snapshot, command, topology, filters=JSON_PATH)
        except StatementError as error:
            yield CheckedStatement(n, sql, error=error)
            if not continue_on_error:
                return
            continue
        snapshot = snapshot.after(change.entries)
        yield CheckedStatement(n, sql, change.applied, change.effect, warnings=change.warnings)


def _pieces(text: str) -> Iterator[tuple[str, Command | Query | ParseError]]:
    """Yield the statements, at least one, each with the command or query that it was parsed as."""
    is_blank = True
    for read in read_each(text, OWN_TEXT):
        is_blank = False
        statement = read.statement
        if isinstance(statement, Ddl):
            yield hide_secrets(read.cut.text), statement.command
        elif isinstance(statement, Query | ParseError):
            yield hide_secrets(read.cut.text), statement
        else:
            # SHOW and DESCRIBE are for people and not part of the language that scripts are judged by.
            yield hide_secrets(read.cut.text), _refusal(read)
    if is_blank:
        yield "", nothing_found(text)


def _refusal(read: ReadPiece) -> Command | ParseError:
    try:
        return read_command(read.cut, read.lines)
    except ParseError as error:
        return error


def print_checked(statement: CheckedStatement, script: Script, *, as_json: bool) -> None:
    if as_json:
        say_json(statement.to_json())
        return
    head = " ".join(statement.sql.split())
    head = head if len(head) <= 72 else head[:69] + "..."
    if statement.error is None:
        op = (statement.effect or {}).get("op", "")
        done = op if statement.applied or op == "rows" else "nothing to do"
        say(f"{statement.n}: ok ({done}): {head}")
    else:
        say(f"{statement.n}: refused: {head}")
        refusal = ProblemDocument.from_body(statement.error.kind.http_status, problem(statement.error))
        print(indent(describe_problem(script, refusal), "  "))
    for warning in statement.warnings:
        say(f"  warning {warning.name}: {warning.message}")


def _node(spec: NodeSpec) -> Node:
    attributes = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in spec.attributes.items()
    }
    profiles, engines = profiles_of(spec.profiles)
    return Node(spec.name, tuple(sorted(attributes.items())), profiles, engines=engines)
