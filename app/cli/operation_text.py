"""Operations as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.cli.cause_pages import say_pages
from app.cli.output import Columns, print_table, table_columns
from app.cli.say import counted, say
from app.contract.operations import OperationBody
from rebalance.core.causes.cause_table import in_words

if TYPE_CHECKING:
    from app.contract.operations import (
        FinaliseAnswer,
        NoteBody,
        OperationDetail,
        PartitionsCancelled,
        ReverseAnswer,
        WaitingBody,
    )


UNITS_SHOWN_MAX = 20
NUMBERS_SHOWN_MAX = 20
STATEMENT_SHOWN_CHARS = 60


def title(operation: OperationBody) -> str:
    return f"{operation['operation_id']} {operation['kind']} {operation['zone']} {operation['state']}"


def _state(operation: OperationBody) -> str:
    """One that was stopped may still complete moves in progress."""
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
        columns: Columns = {"partitions": "partitions", "wait for": _in_words, "numbers": _waiting_numbers}
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


def _in_words(cause: WaitingBody) -> str:
    return in_words(cause["cause"])


def _waiting_numbers(cause: WaitingBody) -> str:
    return _numbers(cause["numbers"], cause["partitions"])


def reverse_line(answer: ReverseAnswer) -> Sequence[str]:
    reversing = answer["operation_id"] or "an operation that no controller has started yet"
    return [f"{answer['reverses']} is reversed by {reversing}: catalog version {answer['catalog_version']}"]


def cancelled_lines(answer: PartitionsCancelled) -> Sequence[str]:
    """What becomes of which partitions."""
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


def finalise_line(answer: FinaliseAnswer) -> str:
    deletion = "would be deleted" if answer["dry_run"] else "scheduled for deletion"
    copies = (
        f"{counted(answer['copies'], 'kept replica')} {deletion}" if answer["copies"] else "no kept replicas"
    )
    return f"{answer['operation_id']}: {copies}"


def _numbers(numbers: Sequence[int], count: int) -> str:
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
