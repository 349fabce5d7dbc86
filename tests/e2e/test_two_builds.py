"""The previous release and this build side by side: processes are replaced one at a time, there, back, and
there again, while clients read and write zones of three copies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.cli.exits import ExitCode
from catalog.core.level import LEVEL
from rebalance.core.keyspace.keys import Keyspace
from rebalance.data.zone_router import TIME_LIMIT_S
from tests.e2e.installation import wait_for
from tests.fixtures.client_of_build import ClientOfBuild, client_of_build
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.mixed_builds import (
    CONTROLLERS,
    NODES,
    PROCESSES,
    QUERY_S,
    SERVERS,
    MixedBuilds,
    mixed_builds,
)
from tests.fixtures.mixed_load import MixedLoad, mixed_load
from tests.fixtures.previous_build import PRESENT, Build
from tests.linearizability.load import Way

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2_400),
    pytest.mark.slow("every process is replaced three times, and data is moved under each leader"),
]

SEED = 1
CLIENTS = {
    "GROUPED": {Way.DIRECT: 2, Way.ROUTED: 2, Way.SPREAD: 3},
    "STORED": {Way.DIRECT: 3, Way.ROUTED: 3},
}
"""Clients of each zone by their way; the zones are one of each engine."""
CREATED = """
    CREATE ZONE grouped (PARTITIONS 2, REPLICAS 3);
    CREATE ZONE stored (PARTITIONS 4, REPLICAS 3) STORAGE PROFILES ['bulk']
"""
QUERY = "SELECT count(DISTINCT partition_id) AS partitions FROM assignments WHERE zone_name = 'GROUPED'"
SHUT_OUT = "zonekeeper/epoch: format 2 is not known; this build reads 1"
"""Message with which an old store server ends."""
LATER = "CREATE ZONE later (PARTITIONS 1, REPLICAS 3)"
REPLICAS = (4, 3)
"""Numbers of replicas, taken in turns: never fewer than three."""
MORE_PUTS = 20
EXPECTED_PART = "spark"
"""Everything runs without a JVM."""
WELL_S = 60.0


@dataclass
class Scenario:
    """``leaders``: the build of each controller that led, in order."""

    mixed: MixedBuilds
    load: MixedLoad
    leaders: list[str] = field(default_factory=list)
    altered: int = 0

    def begin(self) -> None:
        self._until_written()
        self._note_leader()

    def change(self, old: Build, new: Build) -> None:
        """All processes of ``old`` are replaced by ones of ``new``, one at a time; the leading controller is of
        the old, the new, the old and the new build. Under each, data is moved, and a node is replaced."""
        leading = self.mixed.leader()
        (standby,) = set(CONTROLLERS) - {leading}
        assert self.mixed.builds(*PROCESSES) == [old.name] * len(PROCESSES)
        self.mixed.migrate(new)
        self._replace(standby, new)
        self._under_a_leader(new, NODES[0], SERVERS[0])
        self._hand_over(leading, old, standby)
        self._under_a_leader(new, NODES[1])
        self._hand_over(standby, new, leading)
        self._under_a_leader(new, NODES[2], SERVERS[1])
        self._hand_over(leading, new, standby)
        self._under_a_leader(new, NODES[3])
        assert self.mixed.builds(*PROCESSES) == [new.name] * len(PROCESSES)

    def _hand_over(self, leading: str, build: Build, following: str) -> None:
        """The leading controller comes back as one of ``build``, and stands by."""
        self._replace(leading, build)
        wait_for(f"{following} to lead", lambda: self.mixed.leader() == following)
        self._note_leader()

    def _under_a_leader(self, build: Build, *names: str) -> None:
        self.altered += 1
        replicas, server = REPLICAS[self.altered % 2], SERVERS[self.altered % 2]
        for zone in CLIENTS:
            self.mixed.execute(f"ALTER ZONE {zone} SET (REPLICAS {replicas})", server)
        for name in names:
            self._replace(name, build)

    def _replace(self, name: str, build: Build) -> None:
        begun = time.monotonic()
        self.mixed.replace(name, build)
        self._until_written()
        assert self.load.errors() == []
        took_s = time.monotonic() - begun
        print(f"{name} is {build.name} after {took_s:.1f} s, longest {self.load.longest_s:.2f} s", flush=True)

    def _until_written(self) -> None:
        before = self.load.puts
        wait_for("more puts to each zone", partial(self._is_written, before))

    def _is_written(self, before: dict[str, int]) -> bool:
        return all(puts >= before[zone] + MORE_PUTS for zone, puts in self.load.puts.items())

    def _note_leader(self) -> None:
        (build,) = self.mixed.builds(self.mixed.leader())
        self.leaders.append(build)


@pytest.fixture
def mixed(
    own_etcd: EtcdServer, empty_postgres: str, previous_build: Build, tmp_path: Path
) -> Iterator[MixedBuilds]:
    with mixed_builds(tmp_path / "mixed", own_etcd, empty_postgres, previous_build) as mixed:
        yield mixed


def test_processes_are_replaced_one_at_a_time(
    mixed: MixedBuilds, previous_build: Build, tmp_path: Path
) -> None:
    """No client is told of an error, none waits for longer than its own limit, and what all of them saw is
    possible: through an upgrade, back, and the upgrade again."""
    mixed.execute(CREATED)
    log = tmp_path / "client.log"
    with (
        capture_logs(),
        client_of_build(previous_build, mixed.urls, tuple(CLIENTS), mixed.tls, mixed.login, log) as client,
        mixed_load(mixed, CLIENTS, QUERY, SEED) as load,
    ):
        scenario = Scenario(mixed, load)
        scenario.begin()
        scenario.change(previous_build, PRESENT)
        scenario.change(PRESENT, previous_build)
        scenario.change(previous_build, PRESENT)
        keys = load.read_back()
    said = f"{mixed.replacements} replacements, {load.puts} puts, {keys} keys read back"
    print(said, *load.lines(), client, sep="\n")
    judge(load, client, tmp_path)
    old, new = previous_build.name, PRESENT.name
    assert scenario.leaders == [old, new, old, new, old, new, old, new, old, new]
    finish(mixed)
    finalise(mixed)
    previous_builds_are_refused(mixed, previous_build)


def test_the_plan_leads_through_an_upgrade(mixed: MixedBuilds, previous_build: Build) -> None:
    """Upgrade as `docs/upgrade.md` says, by its commands alone: the first server comes without the plan, which
    the previous release does not know."""
    mixed.migrate(PRESENT)
    mixed.replace(SERVERS[0], PRESENT)
    replaced: list[str] = []
    while steps := planned(mixed):
        replaced.append(wait_for("somebody who may go", lambda: next_of(planned(mixed)), WELL_S))
        assert steps[0]["process"] == replaced[-1]
        mixed.replace(mixed.name_of(replaced[-1]), PRESENT)
        wait_for("the new process in the plan", lambda: next_of(planned(mixed)) != replaced[-1], WELL_S)
    names = [mixed.name_of(process) for process in replaced]
    assert (names[0], set(names[1:3]), names[3:]) == (SERVERS[1], set(CONTROLLERS), list(NODES))
    refusal = mixed.zonectl("upgrade", "finalise", "--yes")
    assert refusal.returncode == ExitCode.FAILED
    assert "was seen less than 10 minutes ago, and may come back" in refusal.stderr
    mixed.delete(Keyspace().older_build)
    wait_for("all servers to be ready for it", lambda: states(mixed) == ["READY", "READY"], WELL_S)
    assert mixed.zonectl("upgrade", "plan").stdout.endswith(
        f"next: `zonectl upgrade finalise` (level {LEVEL})\n"
    )
    done = mixed.zonectl("upgrade", "finalise", "--yes")
    assert done.stdout == f"release level {LEVEL} is in force now\n", done.stderr
    shown = mixed.zonectl("upgrade", "status").stdout
    assert shown.startswith(f"FINALISED: release level {LEVEL} is in force")


def planned(mixed: MixedBuilds) -> list[dict[str, Any]]:
    done = mixed.zonectl("upgrade", "plan", "--format", "json")
    assert done.returncode == ExitCode.OK, done.stderr
    steps: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    return steps


def next_of(steps: list[dict[str, Any]]) -> str:
    """Process that may be replaced next; empty: none may be now."""
    return next((step["process"] for step in steps if step["may_go"]), "")


def judge(load: MixedLoad, client: ClientOfBuild, directory: Path) -> None:
    """``client``: a program that was not upgraded with the rest."""
    assert load.errors() + client.errors == []
    unexplained = load.unexplained(directory)
    assert not unexplained, "\n".join(unexplained[:3])
    assert max(load.longest_s, client.longest_s) < TIME_LIMIT_S
    assert load.questions.longest_s < QUERY_S
    assert client.puts > MORE_PUTS
    assert list(load.questions.answers) == ["[[2]]"]


def finish(mixed: MixedBuilds) -> None:
    """All processes are of the present build, and all of it is in order."""
    assert mixed.builds(*PROCESSES) == [PRESENT.name] * len(PROCESSES)
    for server in SERVERS:
        wait_for(f"nothing out of order at {server}", lambda server=server: is_well(mixed, server), WELL_S)


def finalise(mixed: MixedBuilds) -> None:
    """Finalise the upgrade, which is refused for the ten minutes in which processes of the previous release may
    come back by themselves."""
    answer = mixed.request(SERVERS[0], "POST", "/api/v1/upgrade/finalise", {})
    assert answer.status_code == httpx.codes.CONFLICT, answer.text
    assert "was seen less than 10 minutes ago" in answer.json()["detail"]
    mixed.delete(Keyspace().older_build)
    wait_for("all servers to be ready for it", lambda: states(mixed) == ["READY", "READY"], WELL_S)
    for is_first in (True, False):
        answer = mixed.request(SERVERS[0], "POST", "/api/v1/upgrade/finalise", {})
        assert answer.json() == {"finalised": is_first, "level_in_force": LEVEL}, answer.text
    wait_for("the level at both servers", lambda: states(mixed) == ["FINALISED", "FINALISED"], WELL_S)
    for server in SERVERS:
        assert mixed.get("/readyz", server)["upgrade"] == []


def previous_builds_are_refused(mixed: MixedBuilds, previous: Build) -> None:
    """A server ends, a node is given nothing and named, its store server ends before it joins, and a
    leading controller writes nothing and is replaced."""
    mixed.stop(SERVERS[1])
    mixed.start(SERVERS[1], previous)
    wait_for("the end of the old server", lambda: mixed.has_ended(SERVERS[1]), WELL_S)
    assert "cannot be written by it" in mixed.log(SERVERS[1]).read_text()
    mixed.stop(NODES[3])
    mixed.start(NODES[3], previous)
    wait_for("the old node to be named", lambda: [f"node {NODES[3]}"] == refused(mixed), WELL_S)
    for name in CONTROLLERS:
        mixed.stop(name)
    mixed.start(CONTROLLERS[1], previous)
    wait_for("the old controller to lead", lambda: mixed.leader() == CONTROLLERS[1], WELL_S)
    answer = mixed.request(SERVERS[0], "POST", "/api/v1/statements", {"sql": LATER})
    assert answer.status_code == httpx.codes.OK, answer.text
    mixed.start(CONTROLLERS[0], PRESENT)
    wait_for("the new controller to lead", lambda: mixed.leader() == CONTROLLERS[0], WELL_S)
    # An old controller would have taken the old node, too.
    wait_for("a zone without it", lambda: data_nodes(mixed, "LATER") == list(NODES[:3]), WELL_S)
    wait_for("the end of its store server", lambda: SHUT_OUT in mixed.log(NODES[3]).read_text(), WELL_S)
    assert mixed.get("/readyz")["store_servers_down"] == [NODES[3]]
    mixed.stop(CONTROLLERS[1])
    mixed.stop(NODES[3])
    mixed.start(NODES[3], PRESENT)
    wait_for("the node of this build", lambda: refused(mixed) == [], WELL_S)
    wait_for("its store server", lambda: mixed.get("/readyz")["store_servers_down"] == [], WELL_S)


def states(mixed: MixedBuilds) -> list[str]:
    return [mixed.get("/api/v1/upgrade", server)["state"] for server in SERVERS]


def refused(mixed: MixedBuilds) -> list[str]:
    """Refusals without versions and levels."""
    return [text.partition(" (")[0] for text in mixed.get("/api/v1/upgrade")["refused"]]


def data_nodes(mixed: MixedBuilds, zone: str) -> list[str]:
    names: list[str] = mixed.get(f"/api/v1/zones/{zone}")["data_nodes"]
    return names


def is_well(mixed: MixedBuilds, server: str) -> bool:
    body = mixed.get("/readyz", server)
    left = [part for part in body["degraded"] if part["part"] != EXPECTED_PART]
    return left == []
