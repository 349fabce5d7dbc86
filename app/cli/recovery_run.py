"""What ``zonectl recovery`` asks, waits for and prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.cli.client import ApiClient, ProblemError, RequestError
from app.cli.connection import connected
from app.cli.exits import ExitCode
from app.cli.names import fold_name
from app.cli.options import OutputFormat
from app.cli.output import print_objects, print_rows
from app.cli.say import counted, say
from app.client.problem import JsonObject
from app.views.shown_resets import shown_of

POLL_S = 0.5
WRITABLE = ("AVAILABLE", "DEGRADED")
STATE_COLUMNS = ("partition", "state", "voters", "node", "replica", "votes", "committed", "last", "reason")
RESET_COLUMNS = ("partition", "survivor", "then", "possibly lost", "note")
CANDIDATE_COLUMNS = ("partition", "node", "copy", "revision", "generation", "state", "use", "reason")


def show_states(
    zone: str, partitions: Sequence[int], form: OutputFormat, url: str | None, data_dir: Path
) -> int:
    """Exit code 1 when a partition takes no writes."""
    with connected(url, data_dir, form) as client:
        found = client.recovery_states(fold_name(zone), partitions)["partitions"]
    if form is OutputFormat.TABLE:
        print_rows(STATE_COLUMNS, [row for each in found for row in _state_rows(each)])
    else:
        print_objects(found, form)
    return ExitCode.OK if all(each["state"] in WRITABLE for each in found) else ExitCode.FAILED


def reset_request(
    partitions: Sequence[int],
    empty: bool,
    discard_copies: str,
    source: str,
    confirm_dead: str,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """The body of a request; what is not given is left out. Names are separated by commas."""
    request: dict[str, Any] = {"partitions": list(partitions), "empty": empty, "dry_run": dry_run}
    names = {"discard_copies": discard_copies, "confirm_dead": confirm_dead}
    request |= {field: split for field, text in names.items() if (split := _names(text))}
    return request | ({"from": source} if source else {})


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def ask_reset(
    zone: str,
    request: Mapping[str, Any],
    form: OutputFormat,
    url: str | None,
    data_dir: Path,
    *,
    wait: bool,
    timeout_s: float | None,
) -> int:
    """Shows what would be lost, and then has exactly that done. Exit code 1 when a partition was refused."""
    with connected(url, data_dir, form) as client:
        planned = client.reset_partitions(fold_name(zone), {**request, "dry_run": True})["partitions"]
        if form is OutputFormat.TABLE:
            print_rows(RESET_COLUMNS, [_reset_row(each) for each in planned])
            if request["dry_run"]:
                _print_candidates(planned)
        _warn(planned)
        found = planned
        if not request["dry_run"]:
            request = {**request, "shown": shown_of(planned)}
            found = client.reset_partitions(fold_name(zone), request)["partitions"]
            _print_late_refusals(planned, found, form)
        if form is not OutputFormat.TABLE:
            print_objects(found, form)
        written = [each["partition"] for each in found if each["written"]]
        if wait and written:
            code = _wait(client, fold_name(zone), written, timeout_s)
            if code is not ExitCode.OK:
                return code
    return ExitCode.FAILED if any(each["refusal"] for each in found) else ExitCode.OK


def _print_candidates(planned: Sequence[JsonObject]) -> None:
    """Every copy on a living node, and what a reset would make of it."""
    rows = [_candidate_row(each["partition"], copy) for each in planned for copy in each["candidates"]]
    if rows:
        print_rows(CANDIDATE_COLUMNS, rows, title="copies on living nodes")
    names = sorted({name for each in planned for name in each["to_confirm"]})
    if names:
        say(f"once you know that {', '.join(names)} are dead: --confirm-dead {','.join(names)}", out=sys.stderr)


def _warn(planned: Sequence[JsonObject]) -> None:
    versions = {node: version for each in planned for node, version in each["unproven"].items()}
    for node, version in sorted(versions.items()):
        line = f"{node} runs etcd {version}: after a crash the revision of its copy proves nothing"
        say(f"warning: {line}", out=sys.stderr)


def _candidate_row(partition: int, copy: JsonObject) -> tuple[str, ...]:
    revision, generation = (
        "?" if copy[name] is None else str(copy[name]) for name in ("revision", "generation")
    )
    use = "best first" if copy["usable"] else f"--from {copy['node']}" if copy["by_name"] else "no"
    kind = copy["kind"].lower()
    return str(partition), copy["node"], kind, revision, generation, copy["state"], use, copy["reason"]


def _print_late_refusals(
    planned: Sequence[JsonObject], found: Sequence[JsonObject], form: OutputFormat
) -> None:
    known = {each["partition"] for each in planned if each["refusal"]}
    late = [each for each in found if each["refusal"] and each["partition"] not in known]
    if late and form is OutputFormat.TABLE:
        print_rows(RESET_COLUMNS, [_reset_row(each) for each in late])


def ask_restart(
    zone: str,
    request: Mapping[str, Any],
    form: OutputFormat,
    url: str | None,
    data_dir: Path,
    *,
    wait: bool,
    timeout_s: float | None,
) -> int:
    with connected(url, data_dir, form) as client:
        found = client.restart_partitions(fold_name(zone), request)["partitions"]
        if form is OutputFormat.TABLE:
            rows = [(str(each["partition"]), " ".join(each["nodes"]), _yes(each["cleanup"])) for each in found]
            print_rows(("partition", "nodes", "new data"), rows)
        else:
            print_objects(found, form)
        if wait:
            # The server's copy of the metastore shows the request a moment later.
            time.sleep(POLL_S)
            return _wait(client, fold_name(zone), [each["partition"] for each in found], timeout_s)
    return ExitCode.OK


def _wait(client: ApiClient, zone: str, partitions: Sequence[int], timeout_s: float | None) -> ExitCode:
    """Until each of them takes writes and none is being founded; one line on stderr for each change."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    shown = ""
    while True:
        try:
            left = [each for each in _states(client, zone, partitions) if not _is_back(each)]
        except RequestError as error:
            if isinstance(error, ProblemError) and error.problem.status < 500:
                raise
            line = f"{zone}: the server does not answer; still asking"
        else:
            line = f"{zone}: {len(partitions) - len(left)}/{len(partitions)} take writes{_reasons(left)}"
            if not left:
                say(line, out=sys.stderr)
                return ExitCode.OK
        if line != shown:
            say(line, out=sys.stderr)
            shown = line
        if deadline is not None and time.monotonic() >= deadline:
            say(f"{zone}: not done after {timeout_s:g} s; it goes on", out=sys.stderr)
            return ExitCode.TIMED_OUT
        time.sleep(POLL_S)


def _states(client: ApiClient, zone: str, partitions: Sequence[int]) -> Sequence[JsonObject]:
    """In one request for few, of the whole zone for many: an address has a length."""
    wanted = set(partitions)
    found = client.recovery_states(zone, partitions if len(partitions) <= 50 else ())["partitions"]
    return [each for each in found if each["partition"] in wanted]


def _is_back(state: JsonObject) -> bool:
    return state["state"] in WRITABLE and state["recovering_on"] is None and not state["restarting"]


def _reasons(left: Sequence[JsonObject]) -> str:
    if not left:
        return ""
    first = left[0]
    where = f", founded on {first['recovering_on']}" if first["recovering_on"] else ""
    return f"; partition {first['partition']} is {first['state']}{where}"


def _state_rows(state: JsonObject) -> list[tuple[str, ...]]:
    head = (str(state["partition"]), state["state"], f"{state['voters_alive']}/{state['voters']}")
    if not state["replicas"]:
        return [(*head, "-", "", "", "", "", "")]
    rows: list[tuple[str, ...]] = []
    for each in state["replicas"]:
        known = [str(each[name]) if each[name] is not None else "" for name in ("committed", "last")]
        rows.append((*head, each["node"], each["state"], _yes(each["voter"]), *known, each["reason"]))
        head = ("", "", "")
    return rows


def _reset_row(reset: JsonObject) -> tuple[str, ...]:
    number = str(reset["partition"])
    if reset["refusal"]:
        return number, "-", "-", "", f"{reset['refusal']['name']}: {reset['refusal']['detail']}"
    then = reset["then"]
    nodes = " ".join((*then["peers"], *then["learners"])) if then else reset["survivor"]
    if reset["empty"]:
        return number, reset["survivor"], nodes, "EVERYTHING", "it begins without data"
    note = _NOTES[reset["orderly"]]
    return number, reset["survivor"], nodes, counted(reset["possibly_lost_entries"], "entry", "entries"), note


_NOTES = {
    True: "stopped in order",
    False: "crashed: it may know of more than is on its disk",
    None: "a copy without a log: of what it has, everything is decided",
}


def _yes(value: bool) -> str:
    return "yes" if value else "no"
