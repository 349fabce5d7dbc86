"""``zonectl plan`` and ``zonectl apply``: zones and tables as files define them.

What ``zonectl plan`` and ``zonectl apply`` do once their options are read.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.address import Address
from app.cli.client import ApiClient
from app.cli.exits import CliError, ExitCode
from app.cli.follow import follow, touched_zones
from app.cli.names import fold_name
from app.cli.options import (
    DEFAULT_DATA_DIR,
    DataDirOption,
    OutputFormat,
    ReasonOption,
    TimeoutOption,
    UrlOption,
    WaitOption,
)
from app.cli.output import counted, json_text, say, say_json, say_lines
from app.cli.problems import JsonObject, ProblemDocument, ProblemError, render_problem
from app.cli.sql_source import Script

if TYPE_CHECKING:
    from app.cli.sql_source import Script


class PlanFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="DIR|FILE|-", help="DDL files: a directory of *.sql files, one file, or `-` for stdin."
    ),
]
PruneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prune",
        metavar="ZONES",
        show_default=False,
        help="Drop these zones with their tables if they are in no file: a name, or a pattern as 'team_a_*';"
        " may be repeated.",
    ),
]
PlanFormatOption = Annotated[PlanFormat, typer.Option("--format", help="Output format of the plan.")]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Files that define zones and tables, and the zones that go where no file names them."""

    source: SourceArgument
    prune: PruneOption = None

    def files(self) -> Sequence[Script]:
        from app.cli.sql_source import read_ddl_files

        return read_ddl_files(self.source)


def plan(
    definitions: Definitions,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with code 5 if there are changes."),
    ] = False,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show what a set of DDL files would change in the live catalog; change nothing.

    The files define the zones and tables that they name completely: an option
    that is left out has its default. Zones and tables in no file are kept unless
    --prune names their zone. Differences that no statement can make (PARTITIONS, a
    table's key) are conflicts, and `zonectl apply` refuses them.

    Each change lists the replicas that move, with source and target. The plan id
    stands for all that the plan was computed from: `apply --plan-id` carries out
    exactly this plan.

    \b
    Examples:
      zonectl plan zones/
      zonectl plan zones/orders.sql --format json
      zonectl plan zones/ --prune 'team_a_*' --check || echo "the catalog has drifted"

    Exit codes: 0 shown, 1 an invalid file or a conflict, 3 no server, 5 changes (with --check), 64 wrong usage.
    """
    from app.cli.address import find_address

    files = definitions.files()
    return show_plan(
        find_address(url, data_dir),
        files,
        prune=prune_scope(definitions.prune or ()),
        check=check,
        as_json=form is PlanFormat.JSON,
    )


def apply(
    definitions: Definitions,
    plan_id: Annotated[
        str | None,
        typer.Option(
            "--plan-id",
            metavar="ID",
            help="Id of the plan to apply; refused if the plan has changed since it was shown.",
        ),
    ] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Change the live catalog to match a set of DDL files; applied again, they change nothing.

    Plans as `zonectl plan` does, then runs the statements of the plan one by one
    and prints each. They run only on the catalog that the plan was made on: if it changes meanwhile, the rest
    of the plan is run if it is still the same, and refused if not (SQLSTATE 40001). A conflict refuses the
    whole plan before anything is changed. With --plan-id no new plan is made: if the catalog,
    the data nodes or the targets have changed, the command says what has changed
    (SQLSTATE 40001) and changes nothing; a plan that was already applied is not an error.

    \b
    Examples:
      zonectl apply zones/ --plan-id "$(zonectl plan zones/ --format json | jq -r .plan_id)"
      zonectl apply zones/ --wait --timeout 120
      zonectl apply zones/ --prune orders --prune 'team_a_*'
      cat zones/*.sql | zonectl apply - --format json

    Exit codes: 0 done (and converged), 1 refused, 3 no server, 4 time-out, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.address import find_address

    files = definitions.files()
    return apply_files(
        find_address(url, data_dir),
        files,
        prune=prune_scope(definitions.prune or ()),
        wait=wait,
        timeout_s=timeout,
        as_json=form is PlanFormat.JSON,
        plan_id=plan_id,
        reason=reason,
    )


MARKS = {"create": "+", "change": "~", "drop": "-"}
MOVES = ("MOVE", "ADD", "REMOVE", "ROLE")
PLANS_MAX = 5
"""Plans made anew because somebody else changed the catalog, before giving up."""


def show_plan(
    address: Address, files: Sequence[Script], *, prune: Sequence[str], check: bool, as_json: bool
) -> int:
    with ApiClient(address) as client:
        plan = _planned(client, files, prune=prune, as_json=as_json)
    if as_json:
        say_json(plan, indent=2)
    else:
        _print_plan(plan)
        say(_summary(plan, "Plan: {create} to create, {change} to change, {drop} to drop."))
    if plan["conflicts"]:
        return ExitCode.FAILED
    return ExitCode.CHANGES if check and plan["changes"] else ExitCode.OK


def apply_files(
    address: Address,
    files: Sequence[Script],
    *,
    prune: Sequence[str],
    wait: bool,
    timeout_s: float | None,
    as_json: bool,
    plan_id: str | None = None,
    reason: str = "",
) -> int:
    """Raises CliError at the first refusal; what was done before it was printed."""
    done: list[JsonObject] = []
    with ApiClient(address, reason) as client:
        plan = _planned(client, files, prune=prune, as_json=as_json, plan_id=plan_id)
        for attempt in range(PLANS_MAX):
            if plan_id is not None:
                if plan["changes"]:
                    _carried_out_as_planned(client, plan, plan_id, done, as_json=as_json)
                break
            if plan["conflicts"]:
                if not as_json:
                    _print_conflicts(plan)
                raise CliError(ExitCode.FAILED, _refusal(plan, as_json=as_json))
            left = _carried_out(client, plan, done, as_json=as_json, last=attempt == PLANS_MAX - 1)
            if not left:
                break
            plan = _planned(client, files, prune=prune, as_json=as_json)
            _require_same(left, plan, as_json=as_json)
        counts = Counter(change["action"] for change in done)
        if as_json:
            say_json({"changes": done, "unmanaged": plan["unmanaged"]}, indent=2)
        else:
            _print_unmanaged(plan)
            text = "Done: {create} created, {change} changed, {drop} dropped."
            applied = "Already applied: " if plan_id is not None else ""
            say(_counted(counts, text) if done else applied + _nothing(plan))
        if not wait:
            return ExitCode.OK
        sys.stdout.flush()
        results = [change["result"] for change in done]
        return follow(client, touched_zones(results), timeout_s=timeout_s).exit_code


def _carried_out(
    client: ApiClient, plan: JsonObject, done: list[JsonObject], *, as_json: bool, last: bool
) -> Sequence[JsonObject]:
    """Runs a plan's statements, each on the catalog that the one before it left. Answers with those that were
    not run because somebody else changed the catalog."""
    version = plan["catalog_version"]
    for number, change in enumerate(plan["changes"], start=1):
        try:
            (result,) = client.execute(change["sql"], base_version=version)
        except ProblemError as error:
            if error.problem.name == "CATALOG_VERSION_CONFLICT" and not last:
                return list(plan["changes"][number - 1 :])
            left = len(plan["changes"]) - number
            script = Script(f"{change['kind']} {change['name']}", change["sql"])
            form = OutputFormat.JSON if as_json else OutputFormat.TABLE
            if not as_json:
                say(
                    f"{len(done)} done, this one refused, {left} not run: correct it and run the command again."
                )
                sys.stdout.flush()
            raise CliError(error.exit_code, render_problem(error.problem, form, script)) from error
        version = result["catalog_version"]
        _show_done(change, result, done, as_json=as_json)
    return ()


def _require_same(left: Sequence[JsonObject], plan: JsonObject, *, as_json: bool) -> None:
    """What is planned after somebody else's change is what was planned before it, or a part of that. Raises
    CliError."""

    def content(change: JsonObject) -> JsonObject:
        return {key: change[key] for key in ("action", "kind", "name", "sql", "differences")}

    before = [content(change) for change in left]
    others = [change for change in plan["changes"] if content(change) not in before]
    if not others and not plan["conflicts"]:
        return
    names = ", ".join(f"{thing['kind']} {thing['name']}" for thing in (*others, *plan["conflicts"]))
    detail = (
        f"the catalog was changed meanwhile, to version {plan['catalog_version']}, and what is "
        f"planned now is another change of {names}; it was not made"
    )
    problem = ProblemDocument(409, "PLAN_CHANGED", detail, 6005, "40001")
    form = OutputFormat.JSON if as_json else OutputFormat.TABLE
    raise CliError(ExitCode.FAILED, render_problem(problem, form))


def prune_scope(names: Sequence[str]) -> tuple[str, ...]:
    """As the catalog has them. Raises UsageError."""
    return tuple(map(fold_name, names))


def _show_done(change: JsonObject, result: Mapping[str, Any], done: list[JsonObject], *, as_json: bool) -> None:
    done.append({**change, "result": result})
    if not as_json:
        say_lines(f"{MARKS[change['action']]} {change['sql']}")
        _print_warnings(result)
        sys.stdout.flush()


def _print_warnings(judged: Mapping[str, Any]) -> None:
    for warning in judged["warnings"]:
        say(f"  warning {warning['name']}: {warning['message']}")


def _carried_out_as_planned(
    client: ApiClient, plan: JsonObject, plan_id: str, done: list[JsonObject], *, as_json: bool
) -> None:
    """All statements in one request, which is run only if they are still this plan. Raises CliError."""
    try:
        results = client.execute(";\n".join(change["sql"] for change in plan["changes"]), plan_id=plan_id)
    except ProblemError as error:
        form = OutputFormat.JSON if as_json else OutputFormat.TABLE
        raise CliError(error.exit_code, render_problem(error.problem, form)) from error
    for change, result in zip(plan["changes"], results, strict=True):
        _show_done(change, result, done, as_json=as_json)


def _planned(
    client: ApiClient,
    files: Sequence[Script],
    *,
    prune: Sequence[str],
    as_json: bool,
    plan_id: str | None = None,
) -> JsonObject:
    """Raises CliError that points into the file which is wrong."""
    try:
        return client.plan([(file.name, file.text) for file in files], prune=prune, plan_id=plan_id)
    except ProblemError as error:
        form = OutputFormat.JSON if as_json else OutputFormat.TABLE
        script = next((file for file in files if file.name == error.problem.file), None)
        raise CliError(error.exit_code, render_problem(error.problem, form, script)) from error


def _print_plan(plan: JsonObject) -> None:
    for change in plan["changes"]:
        mark = MARKS[change["action"]]
        if change["differences"]:
            say(f"{mark} {change['kind']} {change['name']}")
            for difference in change["differences"]:
                say(f"    {_difference(difference)}")
        else:
            say_lines(f"{mark} {change['sql']}")
        for line in _moves(change):
            say(f"    {line}")
        _print_warnings(change)
    if plan["plan_id"]:
        say(f"Plan id: {plan['plan_id']}")
    _print_conflicts(plan)
    _print_unmanaged(plan)


def _difference(row: JsonObject) -> str:
    return f"{row['property']}: {row['before'] or '(none)'} -> {row['after'] or '(none)'}"


def _moves(change: JsonObject) -> list[str]:
    """The replicas that move, and what is copied for them."""
    moves = [row for row in change["effects"] or () if row["section"] in MOVES and row["name"]]
    total = sum(row["bytes"] for row in moves)
    return [
        f"{row['section']} {row['name']}: {counted(row['replicas'], 'replica')}, {row['bytes']} bytes"
        for row in moves
    ] + ([f"to copy: {total} bytes (estimate)"] if total else [])


def _print_conflicts(plan: JsonObject) -> None:
    for conflict in plan["conflicts"]:
        for line in (
            f"! {conflict['kind']} {conflict['name']}",
            f"    {_difference(conflict)}",
            f"    {conflict['reason']}",
        ):
            say(line)


def _print_unmanaged(plan: JsonObject) -> None:
    if plan["unmanaged"]:
        names = ", ".join(f"{thing['kind']} {thing['name']}" for thing in plan["unmanaged"])
        say(f"In no file, kept (--prune with a zone's name drops it): {names}")


def _refusal(plan: JsonObject, *, as_json: bool) -> str:
    if as_json:
        return json_text({"conflicts": plan["conflicts"]})
    return f"{counted(len(plan['conflicts']), 'conflict')}: nothing was changed"


def _summary(plan: JsonObject, text: str) -> str:
    if plan["conflicts"]:
        return f"{counted(len(plan['conflicts']), 'conflict')}: `zonectl apply` would change nothing."
    if not plan["changes"]:
        return _nothing(plan)
    return _counted(Counter(change["action"] for change in plan["changes"]), text)


def _nothing(plan: JsonObject) -> str:
    return f"Nothing to change: the catalog (version {plan['catalog_version']}) matches the files."


def _counted(counts: Counter[str], text: str) -> str:
    return text.format(**{action: counts[action] for action in MARKS})
