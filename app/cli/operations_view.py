"""Printing operations."""

from __future__ import annotations

from collections.abc import Sequence

from app.cli.options import OutputFormat
from app.cli.output import print_objects, print_rows
from app.cli.say import say, say_json
from app.client.problem import JsonObject

UNITS_SHOWN_MAX = 20
STATEMENT_SHOWN = 60


def print_operations(found: Sequence[JsonObject], form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        print_objects(found, form)
        return
    columns = ("operation", "zone", "kind", "state", "done", "started", "by", "why")
    print_rows(columns, [_row(each) for each in found])


def print_operation(found: JsonObject, form: OutputFormat) -> None:
    """For people a few lines, then what waits and the plan as tables."""
    if _printed_as_json(found, form):
        return
    for line in _lines(found):
        say(line)
    if found.get("cancelled"):
        _say_cancelled(found["operation_id"], found["cancelled"])
    if found.get("waiting"):
        say()
        rows = [
            (str(each["partitions"]), each["cause"], _numbers(each["numbers"], each["partitions"]))
            for each in found["waiting"]
        ]
        print_rows(("partitions", "wait for", "which"), rows)
    if found.get("plan"):
        say()
        _print_plan(found["plan"])


def print_reverse(found: JsonObject, form: OutputFormat) -> None:
    if _printed_as_json(found, form):
        return
    goes_back = found["operation_id"] or "the operation that no controller has begun yet"
    say(f"{found['reverses']} is reversed by {goes_back}: catalog version {found['catalog_version']}")


def print_cancelled_partitions(found: JsonObject, form: OutputFormat) -> None:
    if _printed_as_json(found, form):
        return
    _say_cancelled(found["operation_id"], found)


def _say_cancelled(name: str, found: JsonObject) -> None:
    """Which partitions do what."""
    told = (("given_up", "stay where they are"), ("going_back", "go back"), ("begun", "go on to their end"))
    for key, what in told:
        if numbers := found[key]:
            say(f"{name}: {len(numbers)} {what}: {_numbers(numbers[:20], len(numbers))}")


def print_finalise(found: JsonObject, form: OutputFormat) -> None:
    if _printed_as_json(found, form):
        return
    copies = found["copies"]
    deleted = "would be deleted" if found["dry_run"] else "are being deleted"
    told = f"{copies} kept copies {deleted}" if copies else "no copies were kept"
    say(f"{found['operation_id']}: {told}")


def _printed_as_json(found: JsonObject, form: OutputFormat) -> bool:
    if form is OutputFormat.TABLE:
        return False
    say_json(found, indent=2 if form is OutputFormat.JSON else None)
    return True


def _row(each: JsonObject) -> tuple[str, ...]:
    counts = each["progress"]["partitions"]
    return (
        each["operation_id"],
        each["zone"],
        each["kind"],
        each["state"]
        if each["over"] or each["state"] not in ("CANCELLED", "FAILED")
        else f"{each['state']}, ending",
        f"{counts['done']}/{counts['total']}",
        each["started"],
        _who(each),
        each["cause"] or each["reason"],
    )


def _state(each: JsonObject) -> str:
    """One that was stopped may still end what it had begun."""
    ending = each["state"] in ("CANCELLED", "FAILED") and not each["over"]
    return f"{each['state']}, ending" if ending else str(each["state"])


def _lines(found: JsonObject) -> list[str]:
    counts, sizes = found["progress"]["partitions"], found["progress"]["bytes"]
    # A cause may begin with the state: PAUSED does.
    why = found["cause"].removeprefix(f"{found['state']}: ")
    state = f"{found['state']}: {why}" if why else found["state"]
    lines = [f"{found['operation_id']} {found['kind']} of zone {found['zone']}: {state}"]
    reason = f": {found['reason']}" if found["reason"] else ""
    lines.append(f"asked for by {_who(found) or 'nobody'}{reason}")
    if found["statement"]:
        text = " ".join(found["statement"].split())
        lines.append(f"statement: {text[:STATEMENT_SHOWN]}{'...' if len(text) > STATEMENT_SHOWN else ''}")
    if found["reverses"]:
        lines.append(f"takes back: {found['reverses']}")
    ended = f", ended {found['ended']}" if found["ended"] else ""
    lines.append(f"started {found['started']}{ended}")
    for each in found.get("history") or ():
        who, why = each["by"] or "somebody", f": {each['reason']}" if each["reason"] else ""
        lines.append(f"{each['at']} {each['action']} by {who}{why}")
    lines.append(f"partitions: {counts['done']}/{counts['total']} done, {found['partitions_to_move']} to move")
    if sizes["estimated"] or sizes["copied"]:
        rate = found["progress"]["bytes_per_s"]
        pace = f", {rate} bytes/s" if rate is not None else ""
        estimated = f"{sizes['estimated']} to copy (estimate)" if sizes["estimated"] else "no estimate"
        lines.append(f"bytes: {sizes['copied']} copied, {estimated}{pace}")
    left = found["progress"]["seconds_left"]
    return lines + ([f"about {left:g} s left"] if left is not None and not found["over"] else [])


def _print_plan(plan: JsonObject) -> None:
    rows = [
        (each["donor"] or "-", each["stealer"] or "-", str(each["copies"]), str(each["bytes"]))
        for each in plan["units"][:UNITS_SHOWN_MAX]
    ]
    print_rows(("from", "to", "copies", "bytes (estimate)"), rows)
    left = len(plan["units"]) - UNITS_SHOWN_MAX
    if left > 0:
        say(f"... and {left} more (--format json)")
    if plan["batch_size"] is not None:
        say(f"{plan['batches']} batches of at most {plan['batch_size']} partitions")


def _who(each: JsonObject) -> str:
    if not each["by"]:
        return ""
    return str(each["by"]) if each["verified"] else f"{each['by']} (unverified)"


def _numbers(numbers: Sequence[int], count: int) -> str:
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
