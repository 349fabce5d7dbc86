"""What ``zonectl operations`` does once its options are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from app.cli.address import find_address
from app.cli.client import ApiClient, NoAnswerError, ProblemError, UnreachableError
from app.cli.connection import connected
from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.follow import brief, may_pass
from app.cli.followed import FollowedChange, FollowProgress, ProgressView
from app.cli.names import fold_name
from app.cli.operations_view import (
    print_cancelled_partitions,
    print_finalise,
    print_operation,
    print_operations,
    print_reverse,
)
from app.cli.options import OutputFormat, asker
from app.cli.problems import render_problem
from app.cli.rebalance_run import pause_request
from app.client.problem import JsonObject

POLL_S = 2.0
"""One question waits so long at the server, so that progress is shown as often."""
AGAIN_S = 0.25


def list_operations(
    zone: str | None,
    states: Sequence[str],
    kinds: Sequence[str],
    count: int,
    url: str | None,
    data_dir: Path,
    form: OutputFormat,
) -> int:
    """Raises CliError."""
    query: list[tuple[str, str | int]] = [("page_size", count)]
    query += [("zone", fold_name(zone))] if zone is not None else []
    query += [("state", each.upper()) for each in states] + [("kind", each.upper()) for each in kinds]
    with connected(url, data_dir, form) as client:
        found = client.operations(query)
    print_operations(found["operations"], form)
    return ExitCode.OK


def show_operation(name: str, url: str | None, data_dir: Path, form: OutputFormat) -> int:
    """Raises CliError."""
    _one_object(form)
    with connected(url, data_dir, form) as client:
        found = client.operation(name)
    print_operation(found, form)
    return ExitCode.OK


SHOWN = {
    "reverse": print_reverse,
    "partitions/cancel": print_cancelled_partitions,
}
"""How the answers are printed that are not the operation itself."""


def act(action: str, name: str, body: JsonObject, url: str | None, data_dir: Path, form: OutputFormat) -> int:
    """Raises CliError."""
    _one_object(form)
    with connected(url, data_dir, form) as client:
        found = client.act_on_operation(name, action, body)
    SHOWN.get(action, print_operation)(found, form)
    return ExitCode.OK


def finalise(
    name: str, body: JsonObject, url: str | None, data_dir: Path, form: OutputFormat, *, dry_run: bool
) -> int:
    """Exactly the copies that a dry run has shown. Raises CliError."""
    _one_object(form)
    with connected(url, data_dir, form) as client:
        found = client.act_on_operation(name, "finalise", {**body, "dry_run": True})
        if not dry_run:
            found = client.act_on_operation(name, "finalise", {**body, "copies": found["copies"]})
    print_finalise(found, form)
    return ExitCode.OK


def action_body(by: str | None, reason: str) -> JsonObject:
    """Raises UsageError."""
    return {"by": asker(by), "reason": reason}


def pause_body(by: str | None, reason: str, time_limit: str | None) -> JsonObject:
    """Raises UsageError."""
    return pause_request(by, reason, time_limit)


def wait_for_operation(
    name: str, timeout_s: float | None, url: str | None, data_dir: Path, form: OutputFormat
) -> int:
    """Raises CliError."""
    from app.cli.follow_view import choose_view

    _one_object(form)
    with ApiClient(find_address(url, data_dir)) as client:
        try:
            with choose_view() as shown:
                found = _until_over(client, name, timeout_s, shown)
        except ProblemError as error:
            raise CliError(error.exit_code, render_problem(error.problem, form)) from error
    if found is None:
        return ExitCode.TIMED_OUT
    print_operation(found, form)
    if not found["over"]:
        return ExitCode.TIMED_OUT
    return ExitCode.OK if found["state"] == "DONE" else ExitCode.FAILED


def _until_over(
    client: ApiClient, name: str, timeout_s: float | None, shown: ProgressView
) -> JsonObject | None:
    """The operation when it is over or the time is; None when no server has answered until then."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    found: JsonObject | None = None
    away = False
    while True:
        left_s = POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic()))
        try:
            found = client.operation(name, wait_timeout_s=left_s if found else 0, with_plan=False)
        except (UnreachableError, NoAnswerError, ProblemError) as error:
            if not may_pass(error) or (found is None and not away and isinstance(error, UnreachableError)):
                raise
            if not away:
                shown.note(f"the server does not answer ({brief(error)}); still asking")
            away = True
            time.sleep(min(AGAIN_S, left_s))
        else:
            if away:
                shown.note("the server answers again")
            away = False
            shown.update(_change(found), _progress(found))
            if found["over"]:
                return found
        if deadline is not None and time.monotonic() >= deadline:
            shown.note(f"not over after {timeout_s:g} s; the operation goes on")
            return found


def _change(found: JsonObject) -> FollowedChange:
    return FollowedChange(found["zone_id"], _title(found), found["catalog_version"])


def _progress(found: JsonObject) -> FollowProgress:
    counts = found["progress"]["partitions"]
    waiting = found.get("waiting") or ()
    return FollowProgress(
        zone=_title(found),
        converged=bool(found["over"]),
        total=counts["total"],
        done=counts["done"],
        moving=counts.get("moving") or 0,
        waiting=counts.get("waiting") or 0,
        causes=tuple((str(each["cause"]), int(each["partitions"])) for each in waiting),
    )


def _title(found: JsonObject) -> str:
    return f"{found['operation_id']} {found['kind']} {found['zone']} {found['state']}"


def _one_object(form: OutputFormat) -> None:
    if form is OutputFormat.CSV:
        raise UsageError("this prints one object, csv holds rows: choose json or jsonl")
