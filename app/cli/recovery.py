"""``zonectl recovery``: partitions that lost the majority of their voters, and the way back."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from app.cli.connection import Api, RowsApi
from app.cli.exits import ExitCode
from app.cli.follow import LineView, watch
from app.cli.names import fold_name
from app.cli.options import (
    DryRunOption,
    PartitionsOption,
    ReasonOption,
    TimeoutOption,
    ZoneArgument,
    group,
    option,
)
from app.cli.output import Columns, counted, say
from app.cli.problems import JsonObject
from app.views.shown_resets import shown_of

if TYPE_CHECKING:
    from app.cli.client import ApiClient
    from app.contract.recovery import CandidateBody, PartitionStateBody, PartitionStates, ResetBody

POLL_S = 0.5
NAMED_MAX = 50
"""Most partitions that a request names, since URLs are limited in length; for more, the states of the whole
zone are read."""
WRITABLE = ("AVAILABLE", "DEGRADED", "SERVING")
WaitOption = Annotated[bool, option("--wait", "Wait until every partition accepts writes again.")]
app = group("Inspect the health of partitions, and recover from a lost majority.")


@dataclass(frozen=True, slots=True)
class Course:
    """Options for how a change is carried out and followed."""

    dry_run: DryRunOption = False
    reason: ReasonOption = ""
    wait: WaitOption = False
    timeout: TimeoutOption = None

    def is_done(self, client: ApiClient, zone: str, numbers: Sequence[int], first_wait_s: float = 0.0) -> bool:
        """Wait, if asked to, until each of these partitions accepts writes again and none is being founded,
        with a line on stderr for each change. False if the time limit passed."""
        if self.dry_run or not self.wait or not numbers:
            return True
        time.sleep(first_wait_s)
        view, count, awaited = LineView(), len(numbers), set(numbers)

        def are_back(states: PartitionStates) -> bool:
            asked = (state for state in states["partitions"] if state["partition"] in awaited)
            away = [state for state in asked if not _is_back(state)]
            view.line(f"{zone}: {count - len(away)}/{count} accept writes{_first_reason(away)}")
            return not away

        named = numbers if count <= NAMED_MAX else ()
        late = f"{zone}: not done after {self.timeout or 0:g} s; the recovery goes on"

        def ask(_: float) -> PartitionStates:
            return _read_states(client, zone, named)

        return watch(ask, are_back, view, self.timeout, late, pause_s=POLL_S)


def _read_states(client: ApiClient, zone: str, numbers: Sequence[int]) -> PartitionStates:
    """Global and local states; every partition unless some are named."""
    query = [("partition", number) for number in numbers]
    states: PartitionStates = client.ask("GET", "zones", zone, "recovery", "states", query=query)
    return states


@app.command()
def states(api: RowsApi, zone: ZoneArgument, partition: PartitionsOption = None) -> int:
    """Show the state of each partition and of its replicas.

    A partition is AVAILABLE (all replicas are healthy), DEGRADED (a majority of the
    voters is alive), READ_ONLY (some replica is alive) or UNAVAILABLE (none is).
    While the metastore does not respond, the members are asked: SERVING, NOT_SERVING, or UNKNOWN (not asked in
    the last seconds). SINCE is when the state began, as far as the server has seen it. While a group has no
    leader, each replica shows the extent of its log: entries up to COMMITTED are decided, entries up to LAST
    are written. Exit code 1 if a partition does not accept writes.

    \b
    Examples:
      zonectl recovery states orders
      zonectl recovery states orders -p 3 --format json
    """
    with api.client() as client:
        partitions = _read_states(client, fold_name(zone), partition or ())["partitions"]
    if api.is_table:
        api.show(
            [row for state in partitions for row in _state_rows(state)],
            dict(zip(STATE_NAMES, STATE_NAMES, strict=True)),
        )
        for advice in dict.fromkeys(state["advice"] for state in partitions if state.get("advice")):
            say(advice)
    else:
        api.show(partitions, {})
    return ExitCode.OK if all(state["state"] in WRITABLE for state in partitions) else ExitCode.FAILED


@app.command()
def reset(
    api: RowsApi,
    *,
    zone: ZoneArgument,
    partition: PartitionsOption = None,
    empty: Annotated[
        bool, option("--empty", "Start WITHOUT DATA. Refused while a living node has a replica.")
    ] = False,
    discard_copies: Annotated[
        str, option("--discard-copies", "With --empty: living nodes whose replicas may be lost.", "NODE,...")
    ] = "",
    source: Annotated[
        str,
        option("--from", "Use the replica on this node, even if not the best.", "NODE", default="best"),
    ] = "",
    confirm_dead: Annotated[
        str,
        option("--confirm-dead", "Nodes known to be dead. Required in STRONG_CONSISTENCY zones.", "NODE,..."),
    ] = "",
    course: Course,
) -> int:
    """Recover groups that lost a majority of their voters.

    Each is founded anew: the best replica on a living node becomes the group, and
    the full set of replicas is copied from it. Voters and learners count, compared
    by the revision of their data. What that replica knows to be decided survives.
    What only lost members knew is lost, and members that return later are emptied:
    look at --dry-run first, and start the lost nodes instead where possible. The
    losses are shown again before anything is done, and no more than that is done.

    The command is refused while a majority is alive or responds. A node without a
    lease may merely be cut off from etcd and still serve clients: in a
    STRONG_CONSISTENCY zone, name the nodes that you know to be dead.

    \b
    Examples:
      zonectl recovery reset orders --dry-run
      zonectl recovery reset orders --confirm-dead n1,n2 --wait
      zonectl recovery reset orders -p 3 -p 7 --confirm-dead n1,n2 --format json
      zonectl recovery reset orders -p 3 --from n4 --confirm-dead n1,n2,n3
      zonectl recovery reset orders -p 3 --empty --confirm-dead n1     (all data of partition 3 is lost)
    """
    request: dict[str, Any] = {"partitions": partition or [], "empty": empty}
    nodes = {"discard_copies": _names(discard_copies), "from": source, "confirm_dead": _names(confirm_dead)}
    request |= {name: given for name, given in nodes.items() if given}
    zone = fold_name(zone)
    with api.client(course.reason) as client:
        ask = partial(client.ask, "POST", "zones", zone, "recovery", "reset")
        planned = ask(body={**request, "dry_run": True})["partitions"]
        if api.is_table:
            api.show(planned, RESET_COLUMNS)
            if course.dry_run:
                _print_candidates(api, planned)
        _warn(planned)
        resets = planned
        if not course.dry_run:
            request |= {"dry_run": False, "shown": shown_of(planned)}
            resets = ask(body=request)["partitions"]
            known = {reset["partition"] for reset in planned if reset["refusal"]}
            late = [reset for reset in resets if reset["refusal"] and reset["partition"] not in known]
            if late and api.is_table:
                api.show(late, RESET_COLUMNS)
        if not api.is_table:
            api.show(resets, {})
        written = [reset["partition"] for reset in resets if reset["written"]]
        if not course.is_done(client, zone, written):
            return ExitCode.TIMED_OUT
    return ExitCode.FAILED if any(reset["refusal"] for reset in resets) else ExitCode.OK


@app.command()
def restart(
    api: RowsApi,
    *,
    zone: ZoneArgument,
    partition: PartitionsOption = None,
    node: Annotated[
        list[str] | None,
        option("--node", "Only the member on this node. May be repeated.", "NAME", default="all living nodes"),
    ] = None,
    cleanup: Annotated[
        bool, option("--cleanup", "Discard the member's data and copy it again. Requires one --node.")
    ] = False,
    course: Course,
) -> int:
    """Restart members of partitions.

    With --cleanup a member discards its data and joins as a new one, to replace a
    broken replica. Refused unless the other members are a majority without it. A
    copy of a zone of store servers leaves its in-sync set, is emptied and filled
    again from the others; refused if no other live replica is in sync.

    \b
    Examples:
      zonectl recovery restart orders -p 3
      zonectl recovery restart orders -p 3 --node n2 --cleanup --wait
    """
    zone = fold_name(zone)
    request = {"partitions": partition or [], "nodes": node or [], "cleanup": cleanup}
    with api.client(course.reason) as client:
        body = {**request, "dry_run": course.dry_run}
        restarts = client.ask("POST", "zones", zone, "recovery", "restart", body=body)["partitions"]
        nodes = {"nodes": lambda restart: " ".join(restart["nodes"])}
        api.show(restarts, {"partition": "partition", **nodes, "new data": "cleanup"})
        numbers = [restart["partition"] for restart in restarts]
        # The server's copy of the metastore shows the request a moment later.
        if not course.is_done(client, zone, numbers, first_wait_s=POLL_S):
            return ExitCode.TIMED_OUT
    return ExitCode.OK


@app.command("reset-lost")
def reset_lost(
    api: RowsApi,
    zone: ZoneArgument,
    confirm_dead: Annotated[
        str, option("--confirm-dead", "Nodes known to be dead, which partitions wait for.", "NODE,...")
    ] = "",
    reason: ReasonOption = "",
) -> int:
    """Accept data loss and bring lost partitions of a store zone online.

    A partition is LOST when its last in-sync replica went. Start the lost nodes
    first, where possible: the last replica, with its disk, takes over again with every acknowledged write;
    under PARTITION LOSS POLICY READ_WRITE_ALL only after this command, which discards what others wrote
    meanwhile. Without the lost nodes the partition goes on with the most that is left, or empty, and what only
    they had is lost. Exit code 1 if a partition is not owned afterwards.

    Partitions that wait for nodes which are away (OWNERS_AWAITED) are not lost, and
    are left alone. If these nodes never come back, name all that a partition waits
    for: what only they had is given up, and goes when they return after all.

    \b
    Examples:
      zonectl recovery reset-lost orders
      zonectl recovery reset-lost orders --confirm-dead n1,n2
      zonectl recovery reset-lost orders --format json
    """
    body = {"confirm_dead": dead} if (dead := _names(confirm_dead)) else {}
    with api.client(reason) as client:
        # The server waits for the exchange.
        resets = client.ask(
            "POST", "zones", fold_name(zone), "recovery", "reset-lost", body=body, timeout_s=30
        )["partitions"]
    owners = {"owners": lambda reset: " ".join(reset["owners"])}
    api.show(resets, {"partition": "partition", "outcome": "outcome", **owners, "detail": "detail"})
    return ExitCode.OK if all(reset["outcome"] == "OWNED" for reset in resets) else ExitCode.FAILED


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _is_back(state: PartitionStateBody) -> bool:
    return state["state"] in WRITABLE and state["recovering_on"] is None and not state["restarting"]


def _first_reason(away: Sequence[PartitionStateBody]) -> str:
    if not away:
        return ""
    where = f", founded on {away[0]['recovering_on']}" if away[0]["recovering_on"] else ""
    return f"; partition {away[0]['partition']} is {away[0]['state']}{where}"


STATE_HEAD = ("partition", "state", "since", "voters")
STATE_NAMES = (*STATE_HEAD, "node", "replica", "votes", "committed", "last", "reason")


def _state_rows(state: PartitionStateBody) -> Iterator[JsonObject]:
    """Yield a row for each replica; the partition's own cells stand in the first."""
    voters = f"{state['voters_alive']}/{state['voters']}"
    since = state.get("since") or ""
    head = {"partition": state["partition"], "state": state["state"], "since": since, "voters": voters}
    if not state["replicas"]:
        yield {**dict.fromkeys(STATE_NAMES, ""), "node": "-", **head}
    for replica in state["replicas"]:
        yield {**replica, "replica": replica["state"], "votes": replica["voter"], **head}
        head = dict.fromkeys(head, "")


def _then(reset: ResetBody) -> str:
    if reset["refusal"]:
        return "-"
    then = reset["then"]
    return " ".join((*then["peers"], *then["learners"])) if then else str(reset["survivor"])


def _loss(reset: ResetBody) -> str:
    if reset["refusal"]:
        return ""
    return "EVERYTHING" if reset["empty"] else counted(reset["possibly_lost_entries"] or 0, "entry", "entries")


def _note(reset: ResetBody) -> str:
    if reset["refusal"]:
        return f"{reset['refusal']['name']}: {reset['refusal']['detail']}"
    return "starts without data" if reset["empty"] else _NOTES[reset["orderly"]]


_NOTES = {
    True: "stopped in order",
    False: "crashed: may have known more than is on its disk",
    None: "a replica without a log: all it has is decided",
}
RESET_COLUMNS: Columns = {
    "partition": "partition",
    "survivor": lambda reset: "-" if reset["refusal"] else reset["survivor"],
    "then": _then,
    "possibly lost": _loss,
    "note": _note,
}


def _print_candidates(api: Api, planned: Sequence[ResetBody]) -> None:
    """Print all replicas on living nodes, each with its use in a reset."""
    copies = [{"partition": reset["partition"], **copy} for reset in planned for copy in reset["candidates"]]
    if copies:
        columns: Columns = {
            "partition": "partition",
            "node": "node",
            "replica": lambda copy: copy["kind"].lower(),
            "revision": lambda copy: "?" if copy["revision"] is None else copy["revision"],
            "generation": lambda copy: "?" if copy["generation"] is None else copy["generation"],
            "state": "state",
            "use": _use,
            "reason": "reason",
        }
        api.show(copies, columns, title="replicas on living nodes")
    names = sorted({name for reset in planned for name in reset["to_confirm"]})
    if names:
        say(f"if {', '.join(names)} are known to be dead: --confirm-dead {','.join(names)}", out=sys.stderr)


def _use(copy: CandidateBody) -> str:
    if copy["usable"]:
        return "best first"
    return f"--from {copy['node']}" if copy["by_name"] else "no"


def _warn(planned: Sequence[ResetBody]) -> None:
    versions = {node: version for reset in planned for node, version in reset["unproven"].items()}
    for node, version in sorted(versions.items()):
        line = f"{node} runs etcd {version}: after a crash the revision of its replica proves nothing"
        say(f"warning: {line}", out=sys.stderr)
