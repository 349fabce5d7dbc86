"""What ``zonectl sql`` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from app.cli.address import Address
from app.cli.client import ApiClient, ProblemError
from app.cli.exits import CliError, ExitCode
from app.cli.follow import follow
from app.cli.followed import FollowedChange
from app.cli.options import OutputFormat
from app.cli.output import print_results
from app.cli.problems import render_problem
from app.cli.script_parts import ScriptPart, parts_of
from app.cli.sql_source import Script
from app.client.problem import JsonObject, ProblemDocument


def run_script(
    address: Address,
    script: Script,
    form: OutputFormat,
    *,
    wait: bool,
    timeout_s: float | None,
    reason: str = "",
) -> int:
    """Results to stdout, also those before a refused statement. Raises CliError for that one."""
    with ApiClient(address, reason) as client:
        results: list[JsonObject] = []
        part = ScriptPart("")
        try:
            for part in parts_of(script):
                results += _numbered(client.execute(part.text), part)
        except ProblemError as error:
            results += _numbered(error.problem.results, part)
            problem = replace(part.in_script(error.problem), results=tuple(results))
            if results or form is OutputFormat.JSON:
                print_results(results, form)
            sys.stdout.flush()
            told = render_problem(problem, form, script)
            if form is OutputFormat.TABLE:
                told += _where_it_stopped(problem)
            raise CliError(error.exit_code, told) from error
        print_results(results, form)
        if not wait:
            return ExitCode.OK
        sys.stdout.flush()
        return follow(client, touched_zones(results), timeout_s=timeout_s).exit_code


def _numbered(results: Sequence[JsonObject], part: ScriptPart) -> list[JsonObject]:
    """With their numbers in the whole script."""
    before = part.statements_before
    return [{**each, "n": each["n"] + before} for each in results] if before else list(results)


def _where_it_stopped(problem: ProblemDocument) -> str:
    """What of a script is done: nothing when it was not understood, for it is read whole before it runs."""
    done = len(problem.results)
    if problem.statement is None or (not done and problem.statement == 1):
        return ""
    if not done:
        return f"\nStatement {problem.statement} is wrong; none was run."
    return f"\nStatement {problem.statement} was refused; {done} before it done, those after it not run."


def touched_zones(results: Sequence[JsonObject]) -> tuple[FollowedChange, ...]:
    """The last change of each zone, in the order in which the script first names them."""
    last: dict[int, FollowedChange] = {}
    for result in results:
        zone_id, version = result.get("zone_id"), result.get("catalog_version")
        if zone_id is None or version is None:
            continue
        name = str((result.get("effect") or {}).get("zone") or f"zone {zone_id}")
        last[zone_id] = FollowedChange(zone_id, name, version)
    return tuple(last.values())
