"""``zonectl demo``: the main use on a running installation. Every claim that it prints is checked.

Its script is one CREATE ZONE and one ALTER ZONE, run separately so that keys can be written in between; its
load is a thread that puts one new key after another while a change runs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self
from uuid import uuid4

from app.cli.address import Address, find_address
from app.cli.client import ApiClient
from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.follow import FollowProgress, follow, touched_zones
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, UrlOption, option
from app.cli.output import print_table, table_columns
from app.cli.problems import RequestError
from catalog.core.errors import ParseError
from catalog.core.messages import AlterZone, CreateZone, ZoneOption
from parser.queries import Ddl, read_each
from parser.render import render_name
from parser.text import OWN_TEXT

if TYPE_CHECKING:
    from app.contract.statements import StatementOutcome
    from app.contract.zones import PartitionBody, Roles


# A link to examples/quickstart.sql, so that an installed package has the same text.
QUICKSTART = Path(__file__).with_name("quickstart.sql")
PARTITION_FIELDS = ("partition", "leader", "stable", "pending", "members", "state")


@dataclass(frozen=True, slots=True)
class DemoScript:
    """Two statements and the zone's name, each as written in the file; ``replicas``: those that the second
    sets."""

    zone: str
    create: str
    alter: str
    replicas: int


def read_demo_script(path: Path | None) -> DemoScript:
    """Read the demo's script. Raises UsageError when the file is not one CREATE ZONE and one ALTER ZONE."""
    source = path or QUICKSTART
    try:
        return parse_demo_script(source.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from error


def parse_demo_script(text: str) -> DemoScript:
    """Parse the demo's script. Raises ValueError, which says what is expected."""
    pieces = list(read_each(text, OWN_TEXT))
    for piece in pieces:
        if isinstance(piece.statement, ParseError):
            raise ValueError(str(piece.statement)) from piece.statement
    commands = [piece.statement.command for piece in pieces if isinstance(piece.statement, Ddl)]
    match commands:
        case [CreateZone() as create, AlterZone() as alter] if len(pieces) == len(commands):
            values = [clause.value for clause in alter.options if clause.option is ZoneOption.REPLICAS]
        case _:
            raise ValueError("the demo expects one CREATE ZONE, then one ALTER ZONE")
    if not values or not isinstance(values[0], int):
        raise ValueError("the demo expects that ALTER ZONE sets REPLICAS to a number")
    return DemoScript(render_name(create.name), pieces[0].cut.text, pieces[1].cut.text, values[0])


# Between two puts, so that reading all keys back takes seconds, however long the change takes.
PAUSE_S = 0.005


class Writer:
    """Writer of new keys, to be used in a ``with``. ``acknowledged`` holds exactly the puts that the server
    confirmed."""

    def __init__(self, address: Address, zone: str) -> None:
        self.acknowledged: dict[str, str] = {}
        self.errors: list[str] = []
        self.stall_ms_max = 0.0
        self._address = address
        self._zone = zone
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="demo-writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, after the put that is under way."""
        self._ended.set()
        self._thread.join()

    @property
    def puts(self) -> int:
        return len(self.acknowledged) + len(self.errors)

    def _write(self) -> None:
        with ApiClient(self._address) as client:
            while not self._ended.is_set():
                key = f"live-{self.puts + 1:06}"
                started = time.monotonic()
                try:
                    client.write(self._zone, key, f"value of {key}", uuid4().hex)
                    self.acknowledged[key] = f"value of {key}"
                except CliError as error:
                    self.errors.append(f"{key}: {error}")
                self.stall_ms_max = max(self.stall_ms_max, (time.monotonic() - started) * 1000)
                self._ended.wait(PAUSE_S)


READY_WAIT_S = 60.0
SPARK_WAIT_S = 60.0
NODES_WAIT_S = 30.0
# How long after "converged" a node's own report may trail behind.
REPORT_WAIT_S = 5.0
# The writer goes on this long after the change, to meet what ends late.
AFTERMATH_S = 1.0
POLL_S = 0.25
READERS = 4
KEYS = 100
TIMEOUT_S = 300.0
BULK_PROFILE = "bulk"
BULK_ZONE = "quickstart_bulk"
BULK_PARTITIONS = 256
BULK_REPLICAS = 3


def demo(
    script: Annotated[
        Path | None,
        option(
            "--script",
            "Script of one CREATE ZONE and one ALTER ZONE.",
            "FILE",
            default="examples/quickstart.sql",
        ),
    ] = None,
    keys: Annotated[int, option("--keys", "Number of keys to write before the ALTER.", min=1)] = KEYS,
    timeout: Annotated[
        float, option("--timeout", "Time limit of each step, in seconds.", "S", min=1)
    ] = TIMEOUT_S,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Add replicas to a zone while keys are written, and verify every step.

    Then it creates a zone of 256 partitions that store servers keep, where nodes
    have the profile bulk. Existing zones of these names are dropped first. Exit
    code 0 only if no put failed, every key reads back as acknowledged, and every
    partition ends with the requested replicas, all running.

    \b
    Examples:
      zonectl demo
      zonectl demo --url http://127.0.0.1:7400 --keys 1000
    """
    return _run(find_address(url, data_dir), read_demo_script(script), keys=keys, timeout_s=timeout)


class DemoClock:
    """Printer of lines with the seconds since the demo's start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        print(f"[{self.seconds:5.1f} s] {text}", flush=True)


def _run(address: Address, script: DemoScript, *, keys: int, timeout_s: float) -> int:
    """Run the demo, and return its exit code: 0 only if all was as claimed. Raises CliError where it cannot go
    on."""
    clock = DemoClock()
    with ApiClient(address) as client:
        _await_ready(client, clock)
        _await_nodes(client, clock, script.replicas)
        _drop_leftover(client, clock, script.zone, timeout_s)
        zone, partitions = _create(client, clock, script, timeout_s)
        written = {f"key-{index:03}": f"value {index}" for index in range(1, keys + 1)}
        for key, value in written.items():
            client.write(zone, key, value, uuid4().hex)
        clock.say(f"wrote {len(written)} keys")
        _print_partitions(client.partitions(zone), f"{zone} before")

        clock.say(f"{_one_line(script.alter)}   (a writer puts keys meanwhile)")
        with Writer(address, zone) as writer:
            progress = _converge(client, client.execute(script.alter), timeout_s)
            clock.say(f"converged: {progress.counts()}")
            time.sleep(AFTERMATH_S)
        complaints = _await_partitions(client, zone, partitions, script.replicas)
        _print_partitions(client.partitions(zone), f"{zone} after")

        complaints += _compare(client, zone, {**written, **writer.acknowledged})
        clock.say(f"read back {len(written)} + {len(writer.acknowledged)} keys")
        complaints += _bulk_complaints(client, clock, written, timeout_s)
    if not writer.acknowledged:
        complaints.append("the writer got no put acknowledged")
    complaints += [f"a put failed: {error}" for error in writer.errors]
    print(
        f"\nputs during the change: {writer.puts}, errors: {len(writer.errors)}, "
        f"longest stall: {writer.stall_ms_max:.0f} ms, placement engine: {progress.engine or 'unknown'}, "
        f"total: {clock.seconds:.1f} s",
        flush=True,
    )
    for complaint in complaints[:20]:
        print(f"not as said: {complaint}", file=sys.stderr)
    if len(complaints) > 20:
        print(f"not as said: {len(complaints) - 20} more", file=sys.stderr)
    print("demo failed" if complaints else "demo passed", flush=True)
    return ExitCode.FAILED if complaints else ExitCode.OK


def _holds(is_so: Callable[[], bool], within_s: float) -> bool:
    """Wait until ``is_so``; False if the time is over before."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _await_ready(client: ApiClient, clock: DemoClock) -> None:
    """Wait until catalog and metastore answer, and up to a minute for Spark; without it placement runs
    locally."""
    if not _holds(lambda: bool(client.readiness()["ready"]), READY_WAIT_S):
        ready = client.readiness()
        stores = f"catalog {ready.get('catalog')}, metastore {ready.get('metastore')}"
        raise CliError(ExitCode.TIMED_OUT, f"not ready after {READY_WAIT_S:.0f} s: {stores}")
    clock.say(f"catalog and metastore answer at {client.address.url}")
    if client.readiness().get("spark") == "ready":
        return
    clock.say(f"waiting up to {SPARK_WAIT_S:.0f} s for Spark (DDL would be accepted already)")
    if _holds(lambda: client.readiness().get("spark") == "ready", SPARK_WAIT_S):
        clock.say("Spark is ready")
        return
    ready = client.readiness()
    reason = f": {ready['spark_message']}" if ready.get("spark_message") else ""
    clock.say(f"Spark is {ready.get('spark')}{reason}; placement will run locally")


def _drop_leftover(client: ApiClient, clock: DemoClock, zone: str, timeout_s: float) -> None:
    results = client.execute(f"DROP ZONE IF EXISTS {zone}")
    if any(result.get("applied") for result in results):
        clock.say("dropped the zone of an earlier demo; waiting until its members are gone")
        _converge(client, results, timeout_s)


def _create(client: ApiClient, clock: DemoClock, script: DemoScript, timeout_s: float) -> tuple[str, int]:
    """Create the zone, and return the server's name of it and the number of its partitions."""
    clock.say(_one_line(script.create))
    results = client.execute(script.create)
    progress = _converge(client, results, timeout_s)
    effect = results[-1]["effect"] or {}
    clock.say(f"converged: {progress.counts()}")
    return effect["zone"], progress.total


def _await_nodes(client: ApiClient, clock: DemoClock, count: int) -> None:
    """Wait for as many nodes as a partition is to have replicas: fewer would converge, and show less than the
    demo is for. Raises CliError (1)."""

    def alive() -> list[str]:
        return [node["name"] for node in client.nodes() if node["alive"]]

    if not _holds(lambda: len(alive()) >= count, NODES_WAIT_S):
        raise CliError(ExitCode.FAILED, f"the demo needs {count} nodes alive; there are {len(alive())}")
    clock.say(f"nodes: {', '.join(alive())}")


def _converge(client: ApiClient, results: Sequence[StatementOutcome], timeout_s: float) -> FollowProgress:
    """Wait until the zones have converged, and return the progress of the last. Raises CliError (4) when time
    runs out."""
    changes = touched_zones(results)
    outcome = follow(client, changes, timeout_s=timeout_s)
    if not outcome.converged:
        raise CliError(ExitCode.TIMED_OUT, f"{changes[-1].zone} has not converged within {timeout_s:g} s")
    return outcome.last[changes[-1].zone_id]


def find_complaints(partitions: Sequence[PartitionBody], count: int, replicas: int) -> list[str]:
    """Complaints about partitions: a wrong number of them or of stable replicas, moves left over, members
    down."""
    complaints = [] if len(partitions) == count else [f"{len(partitions)} partitions instead of {count}"]
    for partition in partitions:
        name = f"partition {partition['partition']}"
        stable = partition.get("stable")
        holders = {*stable["peers"], *stable["learners"]} if stable else set()
        if len(holders) != replicas:
            complaints.append(f"{name}: {len(holders)} replicas in stable instead of {replicas}")
        complaints += [f"{name}: {key} is left" for key in ("pending", "planned") if partition.get(key)]
        running = {m["node"] for m in partition.get("members") or () if m.get("state") == "RUNNING"}
        complaints += [f"{name}: no running member on {node}" for node in sorted(holders - running)]
    return complaints


def _bulk_complaints(
    client: ApiClient, clock: DemoClock, written: Mapping[str, str], timeout_s: float
) -> list[str]:
    """Check a zone of store servers, one process on each node, with more copies than nodes could run members
    for; returns the complaints."""
    keeping = [node for node in client.nodes() if node["alive"] and BULK_PROFILE in node["profiles"]]
    if len(keeping) < BULK_REPLICAS:
        clock.say(f"no zone of store servers: fewer than {BULK_REPLICAS} nodes have the profile {BULK_PROFILE}")
        return []
    _drop_leftover(client, clock, BULK_ZONE, timeout_s)
    statement = (
        f"CREATE ZONE {BULK_ZONE} (PARTITIONS {BULK_PARTITIONS}, REPLICAS {BULK_REPLICAS}) "
        f"STORAGE PROFILES ['{BULK_PROFILE}']"
    )
    clock.say(statement)
    progress = _converge(client, client.execute(statement), timeout_s)
    clock.say(f"converged: {progress.counts()}")
    for key, value in written.items():
        client.write(BULK_ZONE, key, value, uuid4().hex)
    complaints = _compare(client, BULK_ZONE, written)
    clock.say(f"wrote and read back {len(written)} keys")
    partitions = client.partitions(BULK_ZONE)
    if len(partitions) != BULK_PARTITIONS:
        complaints.append(f"{BULK_ZONE}: {len(partitions)} partitions instead of {BULK_PARTITIONS}")
    for partition in partitions:
        copies = len(partition["copies"])
        if copies != BULK_REPLICAS or not partition["leader"]:
            name = f"{BULK_ZONE}, partition {partition['partition']}"
            complaints.append(f"{name}: {copies} copies, led by {partition['leader'] or 'nobody'}")
    return complaints


def _await_partitions(client: ApiClient, zone: str, count: int, replicas: int) -> list[str]:
    def complaints() -> list[str]:
        return find_complaints(client.partitions(zone), count, replicas)

    return [] if _holds(lambda: not complaints(), REPORT_WAIT_S) else complaints()


def _compare(client: ApiClient, zone: str, expected: Mapping[str, str]) -> list[str]:
    def read(item: tuple[str, str]) -> str | None:
        key, value = item
        try:
            stored = client.get(zone, key)["value"]
        except RequestError as error:
            return f"{key} cannot be read: {error}"
        return None if stored == value else f"{key} is {stored!r} instead of {value!r}"

    with ThreadPoolExecutor(READERS) as pool:
        return [complaint for complaint in pool.map(read, expected.items()) if complaint]


def _print_partitions(partitions: Sequence[PartitionBody], title: str) -> None:
    from app.contract.zones import PartitionBody

    print(f"\n{title}", flush=True)
    columns = table_columns(
        PartitionBody,
        *PARTITION_FIELDS,
        leader=lambda partition: partition.get("leader") or "-",
        stable=lambda partition: _assignments(partition.get("stable")),
        pending=lambda partition: _assignments(partition.get("pending")),
        members=_members,
        state=_state,
    )
    print_table(partitions, columns)
    print(flush=True)


def _members(partition: PartitionBody) -> str:
    members = partition.get("members") or ()
    return " ".join(f"{member['node']}:{member.get('state', '?')}" for member in members) or "-"


def _state(partition: PartitionBody) -> str:
    status = partition.get("status") or {}
    return f"{status.get('state', '?')}" + (f" ({status['cause']})" if status.get("cause") else "")


def _assignments(value: Roles | None) -> str:
    if not value:
        return "-"
    learners = [f"{node} (learner)" for node in value.get("learners", ())]
    return " ".join([*value.get("peers", ()), *learners])


def _one_line(statement: str) -> str:
    return " ".join(statement.split())
