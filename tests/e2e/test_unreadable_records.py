"""Garbage in each kind of key, one after the other, under a running installation: no process ends, nothing is
destroyed or written over, other zones move, the cause is named, and all goes on once the key is mended."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.installation import ANSWER_S, Installation, wait_for, without_spark
from tests.fixtures.installation_dumps import endpoint
from tests.fixtures.slices import in_every_run

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("simulation/test_unreadable has garbage in each kind of key"),
]

PREFIX = "zonekeeper/"
CAUSE = "RECORD_NOT_READABLE"
GARBAGE = (b"x", b'{"v":2}', b"\xff\xfe", b'{"v":1}', b"[]")
FOREIGN = (
    b"intents/abc",
    b"intents/99",
    b"partition/1/x/assignments/stable",
    b"members/1/\xff/n1",
    b"intents/\xff",
)


@dataclass(frozen=True)
class Stored:
    value: bytes
    mod_revision: int


class Store:
    """etcd beside Zonekeeper, by keys below its prefix."""

    def __init__(self, installation: Installation) -> None:
        self._url = f"https://{endpoint(installation)}/v3/kv"
        self._machines = installation.machines

    def _call(self, what: str, **body: Any) -> Any:
        answer = httpx.post(
            f"{self._url}/{what}", json=body, timeout=ANSWER_S, verify=self._machines, trust_env=False
        )
        answer.raise_for_status()
        return answer.json()

    def put(self, key: bytes, value: bytes, *, keeps_lease: bool = False) -> None:
        self._call("put", key=_text(key), value=_text(value), ignore_lease=keeps_lease)

    def delete(self, key: bytes) -> None:
        self._call("deleterange", key=_text(key))

    def below(self, key: bytes) -> dict[str, Stored]:
        """Values and revisions of the keys with that prefix that are UTF-8."""
        found = self._call("range", key=_text(key), range_end=_text(key + b"\xff")).get("kvs", ())
        return {
            name.decode(): Stored(base64.b64decode(each.get("value", "")), int(each["mod_revision"]))
            for each in found
            if b"\xff" not in (name := base64.b64decode(each["key"]).removeprefix(PREFIX.encode()))
        }

    def get(self, name: str) -> Stored | None:
        return self.below(f"{PREFIX}{name}".encode()).get(name)


def _text(key_or_value: bytes) -> str:
    return base64.b64encode(key_or_value).decode()


class World:
    """Two zones: one whose keys are damaged, and another."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.store = Store(installation)
        self._replicas = 1

    def prepare(self) -> None:
        (broken,) = self.installation.sql("CREATE ZONE broken (PARTITIONS 2, REPLICAS 2)")
        self.zone_id = broken["zone_id"]
        self.installation.execute("CREATE ZONE other (PARTITIONS 1, REPLICAS 1)")
        wait_for("broken", lambda: self.installation.converged(broken))
        self._kv("PUT", {"value": "kept"})

    def _kv(self, method: str, body: Any = None) -> Any:
        answer = self.installation.request(method, "/api/v1/zones/BROKEN/kv/k", body)
        answer.raise_for_status()
        return answer.json()

    def serves(self) -> bool:
        return bool(self._kv("GET")["value"] == "kept")

    def pids(self) -> dict[str, int]:
        """Process ids of the server with its controllers, the nodes and etcd, and of the groups' members."""
        children = json.loads((self.installation.directory / "run.json").read_text())["children"]
        founded = self.installation.processes("--initial-cluster", f"{self.zone_id}-")
        members = {f"member {each.pid}": each.pid for each in founded if self._is_ours(each.cmdline())}
        return {**children, **members}

    def _is_ours(self, command: Sequence[str]) -> bool:
        """True for a member of the damaged zone, as the other one's members come and go."""
        tokens = [word for word in command if f"{self.zone_id}-0-" in word or f"{self.zone_id}-1-" in word]
        return bool(tokens)

    def progress(self) -> Any:
        return self.installation.get(f"/api/v1/progress/{self.zone_id}")

    def causes(self) -> str:
        """Reports of the zone, the partitions, and the cluster, with the answers of the routes that examine
        them."""
        partitions = [each["status"] for each in self.installation.partitions("BROKEN")]
        ready = self.installation.request("GET", "/readyz").json()
        return json.dumps([self.progress(), partitions, ready])

    def refusal(self, path: str) -> str:
        return self.installation.request("GET", f"/api/v1/{path}").text

    def refuses_statements(self) -> bool:
        statement = {"sql": "CREATE ZONE IF NOT EXISTS more (PARTITIONS 1, REPLICAS 1)"}
        answer = self.installation.request("POST", "/api/v1/statements", statement)
        return (answer.status_code, answer.json().get("name")) == (503, CAUSE)

    def move_the_other(self) -> None:
        self._replicas = 3 - self._replicas
        self.installation.execute(f"ALTER ZONE other SET (REPLICAS {self._replicas})")

    def is_well(self) -> bool:
        """But for the foreign key of a zone that no catalog has, which is told like any other."""
        told = self.causes().replace(f"{CAUSE}: {PREFIX}intents/99:", "")
        return self.progress()["state"] == "CONVERGED" and CAUSE not in told

    def decided(self) -> dict[str, int]:
        """Keys of the damaged zone on which data depends, with their revisions. What a leader publishes may be
        written anew."""
        prefix = f"partition/{self.zone_id}/"
        names = {
            name: each for name, each in self.store.below(PREFIX.encode()).items() if name.startswith(prefix)
        }
        found = {name: each.mod_revision for name, each in names.items() if not name.endswith("/configuration")}
        for name in (f"target_pointer/{self.zone_id}", f"data_nodes/{self.zone_id}", f"intents/{self.zone_id}"):
            stored = self.store.get(name)
            found[name] = stored.mod_revision if stored is not None else 0
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("unreadable")
    running = Installation(directory / "data", 2, without_spark(directory))
    running.start()
    try:
        found = World(running)
        found.prepare()
        for number, key in enumerate(FOREIGN):
            found.store.put(PREFIX.encode() + key, GARBAGE[number % len(GARBAGE)])
        yield found
        assert found.is_well()
    finally:
        running.stop()


OF_THE_ZONE = (
    *("intents/{z}", "data_nodes/{z}", "data_nodes_history/{z}", "target_pointer/{z}"),
    *("partition/{z}/0/assignments/stable", "partition/{z}/0/assignments/pending"),
    *("partition/{z}/0/assignments/planned", "partition/{z}/0/assignments/pending.lock"),
    *("partition/{z}/0/assignments/change.trigger.revision", "partition/{z}/0/group"),
    *("partition/{z}/0/configuration", "partition/{z}/0/restart/n1", "partition/{z}/0/kept/n1"),
    "members/{z}/0/n1",
)
"""One for each that reads it: relay, controllers, writer of partitions, agent, and views."""
IN_EVERY_RUN = (
    *("intents/{z}", "data_nodes/{z}", "target_pointer/{z}", "partition/{z}/0/assignments/stable"),
    *("partition/{z}/0/assignments/change.trigger.revision", "partition/{z}/0/configuration"),
    "members/{z}/0/n1",
)
OF_ONE_READER = (
    ("operations/{o}", "operations/{o}"),
    ("partition_map/zones/{z}/map", "zones/BROKEN/partition-map"),
)
OF_THE_CLUSTER = (
    "epoch",
    "topology",
    "rebalance/limits",
    "partition/admissions",
    "nodes/n1",
    "drains/n1",
    "processes/x",
)


def _damage(world: World, name: str, garbage: bytes) -> Stored | None:
    key = f"{PREFIX}{name}".encode()
    before = world.store.get(name)
    world.store.put(key, garbage, keeps_lease=before is not None)
    return before


def _mend(world: World, name: str, before: Stored | None) -> None:
    key = f"{PREFIX}{name}".encode()
    if before is None:
        world.store.delete(key)
    else:
        world.store.put(key, before.value, keeps_lease=True)
    wait_for(f"the end of waiting for {name}", world.is_well)


def _is_untouched(world: World, name: str, garbage: bytes) -> bool:
    found = world.store.get(name)
    return found is not None and found.value == garbage


@pytest.mark.parametrize(
    "number", in_every_run(range(len(OF_THE_ZONE)), list(map(OF_THE_ZONE.index, IN_EVERY_RUN)), OF_THE_ZONE)
)
def test_a_key_of_one_zone(world: World, number: int) -> None:
    name, garbage = OF_THE_ZONE[number].format(z=world.zone_id), GARBAGE[number % len(GARBAGE)]
    pids = world.pids()
    before = _damage(world, name, garbage)
    decided = world.decided()
    wait_for("the cause", lambda: CAUSE in (told := world.causes()) and name in told)
    world.move_the_other()
    assert world.serves()
    assert _is_untouched(world, name, garbage)
    assert world.decided() == decided, "nothing was decided about the zone"
    assert pids.items() <= world.pids().items(), "every process and every member runs on"
    _mend(world, name, before)
    assert world.serves()


@pytest.mark.parametrize("number", range(len(OF_ONE_READER)), ids=[name for name, _ in OF_ONE_READER])
def test_a_key_that_is_read_when_it_is_asked_for(world: World, number: int) -> None:
    pointer = world.store.get(f"target_pointer/{world.zone_id}")
    assert pointer is not None
    event = json.loads(pointer.value)["event_revision"]
    places = {"z": world.zone_id, "o": f"{world.zone_id}-{event}"}
    name, path = (each.format(**places) for each in OF_ONE_READER[number])
    pids, garbage = world.pids(), GARBAGE[number]
    wait_for("the key", lambda: world.store.get(name))
    before = _damage(world, name, garbage)
    wait_for("the refusal", lambda: CAUSE in world.refusal(path))
    world.move_the_other()
    assert _is_untouched(world, name, garbage)
    assert pids.items() <= world.pids().items()
    _mend(world, name, before)
    wait_for("an answer", lambda: CAUSE not in world.refusal(path))


@pytest.mark.parametrize("name", OF_THE_CLUSTER)
def test_a_key_of_the_whole_cluster(world: World, name: str) -> None:
    """Everybody waits, or one node does, and nothing is lost meanwhile."""
    pids, garbage = world.pids(), GARBAGE[OF_THE_CLUSTER.index(name) % len(GARBAGE)]
    before = _damage(world, name, garbage)
    decided = world.decided()
    wait_for("the cause", lambda: f"{CAUSE}: {PREFIX}{name}" in world.causes())
    if name == "epoch":
        # The key is looked at once a second, not for each statement.
        wait_for("the refusal of statements", world.refuses_statements)
    status = world.installation.zonectl("status")
    assert f"{PREFIX}{name}" in status.stdout + status.stderr
    assert world.serves()
    assert _is_untouched(world, name, garbage)
    assert world.decided() == decided
    assert pids.items() <= world.pids().items()
    _mend(world, name, before)
    world.move_the_other()


def test_everything_goes_on_afterwards(world: World) -> None:
    """Runs last: what was damaged moves as ever."""
    for replicas in (1, 2):
        world.installation.execute(f"ALTER ZONE broken SET (REPLICAS {replicas})")
    assert world.serves()
