"""What ``zonectl node drain``, ``undrain`` and ``can-stop`` do once their options are read."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from app.cli.client import ApiClient
from app.cli.connection import connected
from app.cli.exits import ExitCode, UsageError
from app.cli.options import OutputFormat, asker
from app.cli.output import print_rows
from app.cli.say import counted, say, say_json
from app.client.problem import JsonObject

POLL_S = 0.5
SHOWN_MAX = 20


def drain_node(
    name: str,
    by: str | None,
    reason: str,
    url: str | None,
    data_dir: Path,
    form: OutputFormat,
    *,
    timeout_s: float | None,
    waits: bool,
) -> int:
    """``timeout_s`` None: as long as it takes. Raises CliError."""
    _one_object(form)
    body = {"by": asker(by), "reason": reason}
    with connected(url, data_dir, form) as client:
        found = client.drain(name, body)
        if waits:
            found = _until_empty(client, name, found, timeout_s)
    _print(found, form, f"node {name} is leaving: {counted(found['members'], 'member')} to move")
    return ExitCode.OK if not waits or not found["members"] else ExitCode.TIMED_OUT


def undrain_node(name: str, reason: str, url: str | None, data_dir: Path, form: OutputFormat) -> int:
    """Raises CliError."""
    _one_object(form)
    with connected(url, data_dir, form, reason) as client:
        found = client.undrain(name)
    told = "is not leaving any more" if found["changed"] else "was not leaving"
    _print(found, form, f"node {name} {told}")
    return ExitCode.OK


def tell_can_stop(name: str, url: str | None, data_dir: Path, form: OutputFormat) -> int:
    """Raises CliError."""
    _one_object(form)
    with connected(url, data_dir, form) as client:
        found = client.can_stop(name)
    verdict = "can be stopped" if found["can_stop"] else "cannot be stopped"
    counts = ", ".join(f"{count} {loss}" for loss, count in found["losses"].items())
    _print(
        found,
        form,
        f"node {name} {verdict}: {counted(found['members'], 'member')}" + (f"; {counts}" if counts else ""),
    )
    if form is OutputFormat.TABLE and found["partitions"]:
        rows = [
            (f"{each['zone']}.{each['partition']}", each["loss"], each["detail"])
            for each in found["partitions"][:SHOWN_MAX]
        ]
        print_rows(("partition", "loses", "why"), rows)
        left = len(found["partitions"]) - SHOWN_MAX
        if left > 0:
            say(f"... and {left} more (--format json)")
    return ExitCode.OK if found["can_stop"] else ExitCode.FAILED


def _until_empty(client: ApiClient, name: str, found: JsonObject, timeout_s: float | None) -> JsonObject:
    """Tells on stderr how many members are left, whenever that changes."""
    started, told = time.monotonic(), None
    while True:
        node = next((each for each in client.nodes() if each["name"] == name), None)
        members = node["members"] if node is not None else 0
        found = {**found, "members": members, "drain": node["drain"] if node is not None else None}
        if members != told:
            say(f"{name}: {counted(members, 'member')} left", out=sys.stderr)
            told = members
        if not members or (timeout_s is not None and time.monotonic() - started >= timeout_s):
            return found
        time.sleep(POLL_S)


def _print(found: JsonObject, form: OutputFormat, line: str) -> None:
    if form is OutputFormat.TABLE:
        say(line)
    else:
        say_json(found, indent=2 if form is OutputFormat.JSON else None)


def _one_object(form: OutputFormat) -> None:
    if form is OutputFormat.CSV:
        raise UsageError("this prints one object, csv holds rows: choose json or jsonl")
