"""Operations of zones that store servers keep, like others: limits, pause, cancel, reverse, drain; kills."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.installation_kills import kill_metastore, kill_parent, kill_server, kill_spark

PARTITIONS = 256
SOAKED = 2_048
LIMIT_S = 300
PAUSED_S = 5

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("integration/test_store_moves moves copies, test_operations pauses and reverses"),
]


def newest(installation: Installation) -> dict[str, Any]:
    operation: dict[str, Any] = installation.get("/api/v1/operations?zone=bulky&page_size=1")["operations"][0]
    return operation


def counts(installation: Installation, name: str) -> dict[str, int]:
    numbers: dict[str, int] = installation.get(f"/api/v1/operations/{name}")["progress"]["partitions"]
    return numbers


def act(installation: Installation, action: str, name: str) -> dict[str, Any]:
    done = installation.zonectl("operations", action, name, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def begin(installation: Installation, replicas: int) -> str:
    """The operation that takes the zone to so many replicas."""
    (result,) = installation.sql(f"ALTER ZONE bulky SET (REPLICAS {replicas})")

    def operation() -> str | None:
        found = newest(installation)
        return found["operation_id"] if found["catalog_version"] == result["catalog_version"] else None

    name: str = wait_for("the operation", operation)
    return name


def sizes(installation: Installation) -> set[tuple[int, int, str]]:
    """Triples of partitions: the number of stable nodes, that of nodes with a copy, and the state."""
    return {
        (len(each["stable"]["peers"]), len(each["copies"]), each["status"]["state"])
        for each in installation.partitions("bulky")
    }


def until_whole(installation: Installation, replicas: int) -> None:
    what = f"{replicas} copies of every partition"
    wait_for(what, lambda: sizes(installation) == {(replicas, replicas, "DONE")}, LIMIT_S)


@contextmanager
def bulky(installation: Installation, partitions: int = PARTITIONS) -> Iterator[float]:
    """Gives the seconds that its creation took."""
    begun = time.monotonic()
    installation.execute(
        f"CREATE ZONE bulky (PARTITIONS {partitions}, REPLICAS 3) STORAGE PROFILES ['bulk']", LIMIT_S
    )
    yield time.monotonic() - begun
    assert installation.zonectl("rebalance", "limits", "--zone-moves", "none").returncode == 0
    installation.execute("DROP ZONE bulky", LIMIT_S)


@contextmanager
def writing_to_bulky(installation: Installation) -> Iterator[None]:
    """Every put is answered, and is there in the end."""
    with bulky(installation):
        with writing(installation, "BULKY") as writer:
            wait_for("puts", lambda: writer.acknowledged)
            yield
        assert writer.errors == []
        writer.read_back()


@pytest.mark.slow("an operation goes on in steps of a second each, is cancelled half-way and reversed")
def test_an_operation_is_paused_cancelled_and_reversed(installation: Installation) -> None:
    """Pause, cancel and reverse an operation with more copies on each node than it may have members. Nothing
    begins while it is paused; what was done when it was cancelled stays, until it is reversed."""
    with writing_to_bulky(installation):
        assert installation.zonectl("rebalance", "limits", "--zone-moves", "32").returncode == 0
        name = begin(installation, 2)
        wait_for("some moves", lambda: counts(installation, name)["done"], LIMIT_S)
        assert act(installation, "pause", name)["state"] == "PAUSED"
        wait_for("rest", lambda: not any(each["pending"] for each in installation.partitions("bulky")))
        at_rest = sizes(installation)
        assert {stable for stable, _, _ in at_rest} == {2, 3}
        time.sleep(PAUSED_S)
        assert sizes(installation) == at_rest
        act(installation, "resume", name)
        done = counts(installation, name)["done"]
        wait_for("more moves", lambda: counts(installation, name)["done"] > done, LIMIT_S)
        assert act(installation, "cancel", name)["state"] == "CANCELLED"
        wait_for("its end", lambda: newest(installation)["over"], LIMIT_S)
        assert {stable for stable, _, _ in sizes(installation)} == {2, 3}
        assert installation.zonectl("rebalance", "limits", "--zone-moves", "none").returncode == 0
        reverse = act(installation, "reverse", name)
        assert reverse["reverses"] == name
        until_whole(installation, 3)
        wait_for("the reversal", lambda: newest(installation)["state"] == "DONE", LIMIT_S)
        assert act(installation, "show", name)["state"] == "REVERSED"


@pytest.mark.slow("every copy of a node moves away and comes back")
def test_a_node_with_copies_leaves_and_comes_back(installation: Installation) -> None:
    """Let a node stop while another copy is in sync, without waiting for a majority, and refuse when there is
    none."""
    with writing_to_bulky(installation):
        told = json.loads(installation.zonectl("node", "can-stop", "n3", "--format", "json").stdout)
        assert (told["can_stop"], told["members"], told["copies"]) == (True, 0, PARTITIONS)
        assert set(told["losses"]) == {"LEADER"}
        done = installation.zonectl("node", "drain", "n3", "--wait", "--timeout", "200")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "n3: 0 members left" in done.stderr
        until_whole(installation, 2)
        stopped = json.loads(installation.zonectl("node", "can-stop", "n3", "--format", "json").stdout)
        assert (stopped["copies"], stopped["losses"]) == (0, {})
        begin(installation, 1)
        until_whole(installation, 1)
        alone = installation.zonectl("node", "can-stop", "n1", "--format", "json")
        assert alone.returncode == 1
        assert set(json.loads(alone.stdout)["losses"]) == {"LAST_COPY"}
        begin(installation, 3)
        assert installation.zonectl("node", "undrain", "n3").returncode == 0
        until_whole(installation, 3)


def kill_store_server(installation: Installation) -> None:
    (server,) = installation.processes("store serve", "--name n1 ")
    server.kill()


def kill_agent(installation: Installation) -> None:
    """Kill the node's agent, with which its store server ends."""
    (agent,) = installation.processes("app.cli", " node ", "--name n2 ")
    agent.kill()


Kill = Callable[[Installation], None]
KILLS: tuple[Kill, ...] = (kill_store_server, kill_agent, kill_server)


def end_under_kills(installation: Installation, kills: tuple[Kill, ...]) -> dict[str, float]:
    """Seconds from each kill, in the middle of a change, to the end of the change."""
    elapsed_s = {}
    for number, kill in enumerate(kills):
        replicas = 3 if number % 2 else 2
        begin(installation, replicas)
        begun = time.monotonic()
        kill(installation)
        wait_for("every node", installation.is_whole)
        until_whole(installation, replicas)
        wait_for("its end", lambda: newest(installation)["state"] == "DONE", LIMIT_S)
        elapsed_s[kill.__name__] = round(time.monotonic() - begun, 1)
    return elapsed_s


@pytest.mark.slow("processes are killed and come back, one after the other")
def test_changes_end_whatever_is_killed(installation: Installation) -> None:
    """A store server, an agent with its server, and the server with the controllers."""
    with bulky(installation):
        values = {f"key-{number}": str(number) for number in range(20)}
        for key, value in values.items():
            assert installation.zonectl("kv", "put", "bulky", key, value).returncode == 0
        end_under_kills(installation, KILLS)
        for key, value in values.items():
            read = installation.zonectl("kv", "get", "bulky", key, "--format", "json")
            assert json.loads(read.stdout)["value"] == value


@pytest.mark.soak
def test_a_large_zone_through_all_that_may_happen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2,048 partitions: created, altered, a node drained, a fourth node, every process killed, and what has
    begun called back."""
    whole = Installation(tmp_path / "data", 3)
    whole.start()
    elapsed_s: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        elapsed_s[what] = round(time.monotonic() - begun, 1)

    try:
        wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready")
        with bulky(whole, SOAKED) as created_s:
            elapsed_s["create"] = round(created_s, 1)
            for replicas in (2, 3):
                with timed(f"alter to {replicas}"):
                    begin(whole, replicas)
                    until_whole(whole, replicas)
            with timed("drain"):
                assert whole.zonectl("node", "drain", "n3", "--wait", "--timeout", "300").returncode == 0
            with timed("undrain"):
                assert whole.zonectl("node", "undrain", "n3").returncode == 0
                until_whole(whole, 3)
            elapsed_s |= end_under_kills(whole, (*KILLS, kill_metastore, kill_spark, kill_parent))
            with timed("called back while a server stands still"):
                call_back(whole)
            whole.stop()
            whole.nodes = 4
            whole.start()
            with timed("a fourth node"):
                wait_for("copies on it", lambda: "n4" in holders(whole), LIMIT_S)
                until_whole(whole, 3)
    finally:
        whole.stop()
    with capsys.disabled():
        print(f"\n{SOAKED} partitions, seconds: {json.dumps(elapsed_s)}, load {os.getloadavg()[0]:.1f}")


def call_back(whole: Installation) -> None:
    """Cancel an operation under way: what has begun goes back to what it was, once the suspended server is out
    of the ring. What was over before stays at the target."""
    before = {each["partition"]: sorted(each["stable"]["peers"]) for each in whole.partitions("bulky")}
    (server,) = whole.processes("store serve", "--name n1 ")
    server.suspend()
    replicas = 2 if len(before[0]) == 3 else 3
    try:
        name = begin(whole, replicas)
        wait_for("moves", lambda: any(each["pending"] for each in whole.partitions("bulky")), LIMIT_S)
        cancelled = act(whole, "cancel", name)["cancelled"]
    finally:
        server.resume()
    # Where a replica more was asked for, and cancelled, the zone goes on asking for it.
    at_rest = {"DONE", f"REPLICAS_MISSING: 2 of {replicas} replicas"}

    def rests() -> bool:
        statuses = [each["status"] for each in whole.partitions("bulky")]
        shown = {(status["cause"] or status["state"]).partition(",")[0] for status in statuses}
        return bool(newest(whole)["over"]) and shown <= at_rest

    wait_for("rest", rests, LIMIT_S)
    after = {each["partition"]: sorted(each["stable"]["peers"]) for each in whole.partitions("bulky")}
    given_up = {*cancelled["given_up"], *cancelled["going_back"]}
    assert given_up
    for number, nodes in after.items():
        assert nodes == before[number] if number in given_up else len(nodes) == replicas
    # The catalog still has what was cancelled: another node would bring it about.
    act(whole, "reverse", name)
    until_whole(whole, len(before[0]))


def holders(whole: Installation) -> set[str]:
    return {copy["node"] for each in whole.partitions("bulky") for copy in each["copies"]}
