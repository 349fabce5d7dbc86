"""Printing limits of moves and pauses."""

from __future__ import annotations

from app.cli.options import OutputFormat
from app.cli.output import print_rows
from app.cli.say import say, say_json
from app.client.problem import JsonObject
from rebalance.core.admission import RATES
from rebalance.core.bandwidth import told_rate

CAPS = {
    "cluster_moves": "partitions that move at once",
    "zone_moves": "of each zone",
    "donor_moves": "away from each node",
    "receiver_moves": "onto each node",
    "batch_size": "moves of a zone that begin together",
}


def print_limits(limits: JsonObject, form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        say_json(limits, indent=2 if form is OutputFormat.JSON else None)
        return
    rows = [
        (name, "none" if limits[name] is None else str(limits[name]), meaning) for name, meaning in CAPS.items()
    ]
    if limits.get("one_operation"):
        rows.append(("one_operation", "yes", "moves of one operation begin at a time"))
    if limits.get("operation_s") is not None:
        rows.append(("operation_s", str(limits["operation_s"]), "seconds that an operation may take"))
    if limits.get("copy_attempts") is not None:
        rows.append(("copy_attempts", str(limits["copy_attempts"]), "attempts at a copy, then it has failed"))
    if limits.get("copy_s") is not None:
        rows.append(("copy_s", str(limits["copy_s"]), "seconds that a copy may take"))
    if limits.get("joiner_s") is not None:
        rows.append(("joiner_s", str(limits["joiner_s"]), "seconds that a node may be gone which gets a copy"))
    if limits.get("ha_reset_s") is not None:
        rows.append(
            ("ha_reset_s", str(limits["ha_reset_s"]), "seconds without a majority, then an automatic reset")
        )
    for name, what in (("cluster_bytes_s", "whole cluster"), ("node_bytes_s", "onto or away from a node")):
        if limits.get(name) is not None:
            rows.append((name, told_rate(limits[name]), f"copies that begin, {what}"))
    if limits.get("keep_copies"):
        rows.append(("keep_copies", "yes", "copies of members that leave stay until they are finalised"))
    if limits.get("rebalancing") is False:
        rows.append(("rebalancing", "no", "what would move data is refused"))
    rows += [("window", each, "moves begin in it, UTC") for each in limits.get("windows", ())]
    print_rows(("limit", "value", "meaning"), rows)
    for line in (*_waiting_lines(limits), *pause_lines(limits)):
        say(line)


def _waiting_lines(limits: JsonObject) -> list[str]:
    """Nothing where nobody has set the time of automatic resets: it is of interest to whoever changes it."""
    nodes = limits.get("ha_reset_waits_for")
    if not nodes or limits.get("ha_reset_s") is None:
        return []
    return [
        f"ha_reset_s is not in force yet on {', '.join(nodes)}: they have not published that they keep to it"
    ]


def pause_lines(limits: JsonObject) -> list[str]:
    """``paused by alice: new disks, until ...``: one line a pause."""
    lines = [f"paused {_told(limits['pause'])}"] if limits["pause"] else []
    return lines + [f"zone {each['zone']} paused {_told(each)}" for each in limits["zone_pauses"]]


def summary(limits: JsonObject) -> list[str]:
    """What ``zonectl status`` says of limits; nothing where there are none."""
    caps = ", ".join(f"{name} {limits[name]}" for name in (*CAPS, *RATES) if limits.get(name) is not None)
    lines = [f"limits of moves: {caps}"] if caps else []
    lines += ["one operation at a time"] if limits.get("one_operation") else []
    lines += ["copies are kept until they are finalised"] if limits.get("keep_copies") else []
    lines += ["rebalancing is turned off"] if limits.get("rebalancing") is False else []
    windows = ", ".join(limits.get("windows", ()))
    lines += [f"moves begin in windows: {windows} UTC"] if windows else []
    return lines + pause_lines(limits)


def _told(pause: JsonObject) -> str:
    reason = f": {pause['reason']}" if pause["reason"] else ""
    until = f", until {pause['until']}" if pause["until"] else ""
    return f"by {pause['by']} since {pause['since']}{reason}{until}"
