"""``zonectl operations``: all changes that move data, with their progress, and the control of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import Api, ObjectApi, RowsApi
from app.cli.exits import ExitCode
from app.cli.follow import FollowedChange, FollowProgress, choose_view, say_pages, watch
from app.cli.limits import pause_request
from app.cli.names import fold_name
from app.cli.options import AuditNote, DryRunOption, ForOption, PartitionsOption, argument, group, option
from app.cli.output import Columns, counted, print_table, say, table_columns
from app.cli.problems import JsonObject
from app.contract.operations import OperationBody
from rebalance.core.causes.cause_table import in_words

if TYPE_CHECKING:
    from app.contract.operations import (
        NoteBody,
        OperationDetail,
        PartitionsCancelled,
        ReverseAnswer,
    )


ANSWER_S = 10.0
UNITS_SHOWN_MAX = 20
NUMBERS_SHOWN_MAX = 20
STATEMENT_SHOWN_CHARS = 60


def title(operation: OperationBody) -> str:
    return f"{operation['operation_id']} {operation['kind']} {operation['zone']} {operation['state']}"


def _state(operation: OperationBody) -> str:
    """State of an operation; one that was stopped may still be completing moves in progress."""
    ending = operation["state"] in ("CANCELLED", "FAILED") and not operation["over"]
    return f"{operation['state']}, ending" if ending else str(operation["state"])


def _requester(operation: OperationBody) -> str:
    if not operation["by"]:
        return ""
    return str(operation["by"]) if operation["verified"] else f"{operation['by']} (unverified)"


def _done(operation: OperationBody) -> str:
    counts = operation["progress"]["partitions"]
    return f"{counts['done']}/{counts['total']}"


OPERATION_FIELDS = ("operation_id", "zone", "kind", "state", "done", "started", "by", "reason")
COLUMNS = table_columns(
    OperationBody,
    *OPERATION_FIELDS,
    state=_state,
    done=_done,
    by=_requester,
    reason=lambda operation: operation["cause"] or operation["reason"],
)


def operation_lines(operation: OperationDetail) -> list[str]:
    sizes = operation["progress"]["bytes"]
    # A cause may begin with the state: PAUSED does.
    cause = operation["cause"].removeprefix(f"{operation['state']}: ")
    state = f"{operation['state']}: {cause}" if cause else operation["state"]
    lines = [f"{operation['operation_id']} {operation['kind']} of zone {operation['zone']}: {state}"]
    lines.append(f"requested by {_requester(operation) or 'nobody'}{_reason(operation)}")
    if operation["statement"]:
        text = " ".join(operation["statement"].split())
        shortened = text if len(text) <= STATEMENT_SHOWN_CHARS else f"{text[:STATEMENT_SHOWN_CHARS]}..."
        lines.append(f"statement: {shortened}")
    if operation["reverses"]:
        lines.append(f"reverses: {operation['reverses']}")
    ended = f", ended {operation['ended']}" if operation["ended"] else ""
    lines.append(f"started {operation['started']}{ended}")
    lines += [
        f"{entry['at']} {entry['action']} by {entry['by'] or 'unknown'}{_reason(entry)}"
        for entry in operation.get("history") or ()
    ]
    lines.append(f"partitions: {_done(operation)} done, {operation['partitions_to_move']} to move")
    if sizes["estimated"] or sizes["copied"]:
        rate = operation["progress"]["bytes_per_s"]
        pace = f", {rate} bytes/s" if rate is not None else ""
        estimated = f"{sizes['estimated']} to copy (estimate)" if sizes["estimated"] else "no estimate"
        lines.append(f"bytes: {sizes['copied']} copied, {estimated}{pace}")
    left = operation["progress"]["seconds_left"]
    if left is not None and not operation["over"]:
        lines.append(f"about {left:g} s left")
    if cancelled := operation.get("cancelled"):
        lines += cancelled_lines({**cancelled, "operation_id": operation["operation_id"]})
    return lines


def _reason(entry: OperationBody | NoteBody) -> str:
    return f": {entry['reason']}" if entry["reason"] else ""


def print_waiting_and_plan(operation: OperationDetail) -> None:
    if operation.get("waiting"):
        say()
        columns: Columns = {
            "partitions": "partitions",
            "wait for": lambda waiting: in_words(waiting["cause"]),
            "numbers": lambda waiting: _numbers(waiting["numbers"], waiting["partitions"]),
        }
        print_table(operation["waiting"], columns)
        say_pages(waiting["cause"] for waiting in operation["waiting"])
    plan = operation.get("plan")
    if not plan:
        return
    say()
    units = plan["units"]
    print_table(
        units[:UNITS_SHOWN_MAX],
        {
            "from": lambda unit: unit["donor"] or "-",
            "to": lambda unit: unit["stealer"] or "-",
            "copies": "copies",
            "bytes (estimate)": "bytes",
        },
    )
    if len(units) > UNITS_SHOWN_MAX:
        say(f"... and {len(units) - UNITS_SHOWN_MAX} more (--format json)")
    if plan["batch_size"] is not None:
        say(f"{plan['batches']} batches of at most {plan['batch_size']} partitions")


def reverse_line(answer: ReverseAnswer) -> Sequence[str]:
    reversing = answer["operation_id"] or "an operation that no controller has started yet"
    return [f"{answer['reverses']} is reversed by {reversing}: catalog version {answer['catalog_version']}"]


def cancelled_lines(answer: PartitionsCancelled) -> Sequence[str]:
    """Lines with the fates of partitions whose moves were cancelled."""
    name = answer["operation_id"]
    fates = {
        "stay in place": answer["given_up"],
        "go back": answer["going_back"],
        "complete their move": answer["begun"],
    }
    return [
        f"{name}: {len(numbers)} {fate}: {_numbers(numbers[:NUMBERS_SHOWN_MAX], len(numbers))}"
        for fate, numbers in fates.items()
        if numbers
    ]


def _numbers(numbers: Sequence[int], count: int) -> str:
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")


LONG_POLL_S = 2.0
"""Seconds after which the server answers a question, so that progress is shown as often."""

app = group()
IdArgument = Annotated[str, argument("ID", "Operation ID, for example 3-1834.")]


@app.callback(invoke_without_command=True)
def operations(
    api: RowsApi,
    context: typer.Context,
    zone: Annotated[str | None, option("--zone", "Only operations of this zone.", "ZONE")] = None,
    state: Annotated[
        list[str] | None,
        option("--state", "Only in this state, for example RUNNING. May be repeated.", "STATE"),
    ] = None,
    kind: Annotated[
        list[str] | None,
        option("--kind", "Only of this kind, for example ALTER_ZONE. May be repeated.", "KIND"),
    ] = None,
    count: Annotated[
        int, option("--count", "Maximum number of operations, newest first.", min=1, max=1000)
    ] = 20,
) -> None:
    """List the operations that move data, newest first; or show, await and control one.

    A CREATE or ALTER, a node that joins or leaves, a drain and a reset are
    operations. Each records who requested it, its progress, and what it waits for.

    \b
    Examples:
      zonectl operations
      zonectl operations --zone orders --state RUNNING --state PAUSED
      zonectl operations show 3-1834
      zonectl operations wait 3-1834 --timeout 600
      zonectl operations pause 3-1834 --reason "backup" --for 30m
      zonectl operations --format json | jq -r '.[].operation_id'
    """
    if context.invoked_subcommand is not None:
        return
    query: list[tuple[str, str | int]] = [("page_size", count)]
    query += [("zone", fold_name(zone))] if zone is not None else []
    query += [("state", name.upper()) for name in state or []] + [("kind", name.upper()) for name in kind or []]
    with api.client() as client:
        page = client.ask("GET", "operations", query=query)
    api.show(page["operations"], COLUMNS)


@app.command()
def show(api: ObjectApi, name: IdArgument) -> None:
    """Show the progress and the plan of an operation.

    Includes what waits for what, and which node copies from which.

    \b
    Examples:
      zonectl operations show 3-1834
      zonectl operations show 3-1834 --format json | jq .plan.units
    """
    with api.client() as client:
        _show(api, client.ask("GET", "operations", name))


@app.command()
def wait(
    api: ObjectApi,
    name: IdArgument,
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            "Stop waiting after S seconds (exit code 4); the operation goes on.",
            "S",
            min=0,
            default="no limit",
        ),
    ] = None,
) -> int:
    """Wait until an operation is over, and show its progress.

    The command keeps waiting while the server restarts. Exit code 0: the operation is DONE;
    1: it ended otherwise (CANCELLED, FAILED, SUPERSEDED, REVERSED); 4: timed out.

    \b
    Examples:
      zonectl operations wait 3-1834
      zonectl operations wait 3-1834 --timeout 600 --format json | jq -r .state
    """
    operation: OperationDetail | None = None
    with api.client() as client, choose_view() as view:

        def ask(left_s: float) -> OperationDetail:
            long_poll_s = min(LONG_POLL_S, left_s) if operation else 0
            query = {"plan": "false"} | ({"wait_timeout": round(long_poll_s, 3)} if long_poll_s else {})
            asked: OperationDetail = client.ask(
                "GET", "operations", name, query=query, timeout_s=ANSWER_S + long_poll_s
            )
            return asked

        def is_over(answer: OperationDetail) -> bool:
            nonlocal operation
            operation = answer
            change = FollowedChange(answer["zone_id"], title(answer), answer["catalog_version"])
            view.update(change, _progress(answer))
            return answer["over"]

        late = f"not over after {timeout or 0:g} s; the operation goes on"
        ended = watch(ask, is_over, view, timeout, late, pause_s=0, must_answer=True)
    if operation is not None:
        _show(api, operation)
    if operation is None or not ended:
        return ExitCode.TIMED_OUT
    return ExitCode.OK if operation["state"] == "DONE" else ExitCode.FAILED


@app.command()
def pause(api: ObjectApi, name: IdArgument, note: AuditNote, time_limit: ForOption = None) -> None:
    """Pause an operation until `resume`, or for a time.

    Moves in progress are completed, and no more are started. The pause applies to
    the operation's zone, so that later operations of the zone wait too.

    \b
    Examples:
      zonectl operations pause 3-1834 --reason "backup" --for 30m
      zonectl operations resume 3-1834
    """
    _act(api, "pause", name, pause_request(note, time_limit))


@app.command()
def resume(api: ObjectApi, name: IdArgument, note: AuditNote) -> None:
    """End the pause of an operation's zone.

    Partitions that wait with the cause COPY_FAILED are retried at once. A pause of
    the whole cluster is ended by `zonectl rebalance resume`.

    \b
    Example:
      zonectl operations resume 3-1834
    """
    _act(api, "resume", name, note.body())


@app.command()
def cancel(
    api: ObjectApi,
    name: IdArgument,
    note: AuditNote,
    partition: PartitionsOption = None,
) -> None:
    """Cancel an operation, or some of its partitions.

    A partition that has not started stays where it is. One that has started goes
    back if no previous voter has been removed yet; otherwise its move is completed.
    The answer lists the partitions of each kind. The zone keeps its parameters, so
    that its next change, or a node that joins or leaves, moves the rest; `reverse`
    reverts the change itself. With --partition only those are cancelled, and the
    operation goes on with the others.

    \b
    Examples:
      zonectl operations cancel 3-1834 --reason "wrong zone"
      zonectl operations cancel 3-1834 --partition 7 --partition 8
      zonectl operations wait 3-1834
    """
    if partition:
        request = {**note.body(), "partitions": partition}
        _act(api, "partitions/cancel", name, request, cancelled_lines)
    else:
        _act(api, "cancel", name, note.body())


@app.command()
def finalise(api: ObjectApi, name: IdArgument, note: AuditNote, dry_run: DryRunOption = False) -> None:
    """Delete replicas kept by an operation.

    Nodes keep the replicas that moved away from them when `zonectl rebalance limits
    --keep-copies` is set. Those of earlier operations of the zone are deleted too.
    The command is refused until the operation is over. Nodes that are down delete
    theirs when they return.

    \b
    Examples:
      zonectl operations wait 3-1834 && zonectl operations finalise 3-1834
      zonectl operations finalise 3-1834 --dry-run
      zonectl operations finalise 3-1834 --format json | jq .copies
    """
    request = note.body()
    with api.client() as client:
        ask = partial(client.ask, "POST", "operations", name, "finalise")
        answer = ask(body={**request, "dry_run": True})
        if not dry_run:
            # Exactly the copies that the dry run has shown.
            answer = ask(body={**request, "copies": answer["copies"]})
    replicas = "no kept replicas"
    if answer["copies"]:
        deletion = "would be deleted" if answer["dry_run"] else "scheduled for deletion"
        replicas = f"{counted(answer['copies'], 'kept replica')} {deletion}"
    api.show_one(answer, f"{answer['operation_id']}: {replicas}")


@app.command()
def reverse(api: ObjectApi, name: IdArgument, note: AuditNote) -> None:
    """Revert an operation with a new operation.

    The zone gets its previous parameters in a new catalog version, and every
    replica returns to its previous node. Only the newest operation of a zone can
    be reversed, running or over; not if previous nodes are gone, or a reset
    discarded replicas.

    \b
    Examples:
      zonectl operations reverse 3-1834 --reason "too slow"
      zonectl operations wait "$(zonectl operations reverse 3-1834 --format json | jq -r .operation_id)"
    """
    _act(api, "reverse", name, note.body(), reverse_line)


def _act(
    api: Api,
    action: str,
    name: str,
    request: JsonObject,
    lines_of: Callable[[Any], Sequence[str]] | None = None,
) -> None:
    """Act on an operation, and print the answer. ``lines_of``: text for an answer that is not the operation
    itself."""
    with api.client() as client:
        answer = client.ask("POST", "operations", name, *action.split("/"), body=request)
    if lines_of is None:
        _show(api, answer)
    else:
        api.show_one(answer, *lines_of(answer))


def _show(api: Api, operation: OperationDetail) -> None:
    """Print an operation: for people a few lines, then the waits and the plan as tables."""
    api.show_one(operation, *operation_lines(operation))
    if api.is_table:
        print_waiting_and_plan(operation)


def _progress(operation: OperationDetail) -> FollowProgress:
    state = {"state": "CONVERGED" if operation["over"] else "MOVING", "causes": operation.get("waiting")}
    return FollowProgress.from_body(title(operation), {**operation["progress"], **state})
