"""``zonectl plan`` and ``zonectl apply``: zones and tables as files define them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from app.cli.address import find_address
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
    argument,
    option,
)
from app.cli.output import counted, json_text, say, say_json, say_lines
from app.cli.problems import JsonObject, ProblemDocument, ProblemError, render_problem
from app.cli.sql_source import Script, read_ddl_files


class PlanFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


MARKS = {"create": "+", "change": "~", "drop": "-"}
MOVES = ("MOVE", "ADD", "REMOVE", "ROLE")
PLANS_MAX = 5
"""Most plans for one command: a plan is made anew when the catalog was changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Files that define zones and tables, and the zones that are dropped if no file names them."""

    source: Annotated[
        str, argument("DIR|FILE|-", "DDL files: a directory of *.sql files, one file, or `-` for stdin.")
    ]
    prune: Annotated[
        list[str] | None,
        option(
            "--prune",
            "Drop these zones with their tables if they are in no file: a name, or a pattern as 'team_a_*'; "
            "may be repeated.",
            "ZONES",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Connection:
    """Options for the server that makes the plan, and for its format."""

    form: Annotated[PlanFormat, option("--format", "Output format of the plan.")] = PlanFormat.TEXT
    url: UrlOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR

    @contextmanager
    def planner(self, definitions: Definitions, reason: str = "") -> Iterator[Planner]:
        files, prune = read_ddl_files(definitions.source), tuple(map(fold_name, definitions.prune or ()))
        with ApiClient(find_address(self.url, self.data_dir), reason) as client:
            yield Planner(client, files, prune, self.form is PlanFormat.JSON)


@dataclass(frozen=True, slots=True)
class Planner:
    """Planner for files; ``prune`` has names as the catalog has them."""

    client: ApiClient
    files: Sequence[Script]
    prune: Sequence[str]
    as_json: bool

    def plan(self, plan_id: str | None = None) -> JsonObject:
        """Plan the files. Raises CliError, which points into a file that is wrong."""
        try:
            files = [{"name": file.name, "text": file.text} for file in self.files]
            expected = {} if plan_id is None else {"plan_id": plan_id}
            body: JsonObject = {"files": files, "prune": self.prune, **expected}
            return dict(self.client.ask("POST", "plan", body=body))
        except ProblemError as error:
            script = next((file for file in self.files if file.name == error.problem.file), None)
            raise self.refusal(error, script) from error

    def refusal(self, error: ProblemError, script: Script | None = None) -> CliError:
        return CliError(error.exit_code, self.text(error.problem, script))

    def text(self, problem: ProblemDocument, script: Script | None = None) -> str:
        return render_problem(problem, OutputFormat.JSON if self.as_json else OutputFormat.TABLE, script)


def plan(
    *,
    definitions: Definitions,
    check: Annotated[bool, option("--check", "Exit with code 5 if there are changes.")] = False,
    connection: Connection,
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
    with connection.planner(definitions) as planner:
        plan = planner.plan()
    if planner.as_json:
        say_json(plan, indent=2)
    else:
        _print_plan(plan)
        say(_summary(plan, "Plan: {create} to create, {change} to change, {drop} to drop."))
    if plan["conflicts"]:
        return ExitCode.FAILED
    return ExitCode.CHANGES if check and plan["changes"] else ExitCode.OK


def apply(
    *,
    definitions: Definitions,
    plan_id: Annotated[
        str | None,
        option(
            "--plan-id", "Id of the plan to apply; refused if the plan has changed since it was shown.", "ID"
        ),
    ] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    connection: Connection,
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
    with connection.planner(definitions, reason) as planner:
        done: list[JsonObject] = []
        plan = _applied(planner, plan_id, done)
        if planner.as_json:
            say_json({"changes": done, "unmanaged": plan["unmanaged"]}, indent=2)
        else:
            _print_unmanaged(plan)
            counts = Counter(change["action"] for change in done)
            text = "Done: {create} created, {change} changed, {drop} dropped."
            applied = "Already applied: " if plan_id is not None else ""
            say(_counted(counts, text) if done else applied + _nothing(plan))
        if not wait:
            return ExitCode.OK
        sys.stdout.flush()
        results = [change["result"] for change in done]
        return follow(planner.client, touched_zones(results), timeout_s=timeout).exit_code


def _applied(planner: Planner, plan_id: str | None, done: list[JsonObject]) -> JsonObject:
    """Carry out plans, and return the last. Raises CliError at the first refusal; changes before it are
    printed."""
    plan = planner.plan(plan_id)
    if plan_id is not None:
        if plan["changes"]:
            _carried_out_as_planned(planner, plan, plan_id, done)
        return plan
    for attempt in range(PLANS_MAX):
        if plan["conflicts"]:
            if planner.as_json:
                raise CliError(ExitCode.FAILED, json_text({"conflicts": plan["conflicts"]}))
            _print_conflicts(plan)
            message = f"{counted(len(plan['conflicts']), 'conflict')}: nothing was changed"
            raise CliError(ExitCode.FAILED, message)
        left = _carried_out(planner, plan, done, last=attempt == PLANS_MAX - 1)
        if not left:
            break
        plan = planner.plan()
        _require_same(left, plan, planner)
    return plan


def _carried_out(
    planner: Planner, plan: JsonObject, done: list[JsonObject], *, last: bool
) -> Sequence[JsonObject]:
    """Run a plan's statements, each on the catalog that the one before it left. Returns those that were not run
    because the catalog was changed meanwhile."""
    version = plan["catalog_version"]
    for number, change in enumerate(plan["changes"], start=1):
        try:
            (result,) = planner.client.execute(change["sql"], base_version=version)
        except ProblemError as error:
            if error.problem.name == "CATALOG_VERSION_CONFLICT" and not last:
                return list(plan["changes"][number - 1 :])
            left = len(plan["changes"]) - number
            if not planner.as_json:
                say(
                    f"{len(done)} done, this one refused, {left} not run: correct it and run the command again."
                )
                sys.stdout.flush()
            script = Script(f"{change['kind']} {change['name']}", change["sql"])
            raise planner.refusal(error, script) from error
        version = result["catalog_version"]
        _show_done(change, result, done, as_json=planner.as_json)
    return ()


def _require_same(left: Sequence[JsonObject], plan: JsonObject, planner: Planner) -> None:
    """Check that the plan after a change by another user is what was left of the earlier one, or a part of
    that. Raises CliError."""

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
    raise CliError(ExitCode.FAILED, planner.text(ProblemDocument(409, "PLAN_CHANGED", detail, 6005, "40001")))


def _show_done(change: JsonObject, result: Mapping[str, Any], done: list[JsonObject], *, as_json: bool) -> None:
    done.append({**change, "result": result})
    if not as_json:
        say_lines(f"{MARKS[change['action']]} {change['sql']}")
        _print_warnings(result)
        sys.stdout.flush()


def _print_warnings(judged: Mapping[str, Any]) -> None:
    for warning in judged["warnings"]:
        say(f"  warning {warning['name']}: {warning['message']}")


def _carried_out_as_planned(planner: Planner, plan: JsonObject, plan_id: str, done: list[JsonObject]) -> None:
    """Run all statements in one request, which is refused unless they are still this plan. Raises CliError."""
    script = ";\n".join(change["sql"] for change in plan["changes"])
    try:
        results = planner.client.execute(script, plan_id=plan_id)
    except ProblemError as error:
        raise planner.refusal(error) from error
    for change, result in zip(plan["changes"], results, strict=True):
        _show_done(change, result, done, as_json=planner.as_json)


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
    """Lines with the replicas that move, and the bytes to copy for them."""
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
