"""``kill -9`` of each process while an operation runs: the same operation goes on to the same end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from rebalance.hosting.child import spawn, stop
from tests.e2e.installation import MARK, WITH_SPARK, ZONECTL, Installation, wait_for, without_spark, writing
from tests.fixtures.installation_dumps import endpoint

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("a process is killed during an operation, which goes on to its end"),
]

PARTITIONS = 6
ATTEMPTS = 20


@pytest.fixture(scope="module")
def victim(installation: Installation) -> Iterator[Installation]:
    """Two moves at once, so that an operation lasts some seconds."""
    assert installation.zonectl("rebalance", "limits", "--zone-moves", "2").returncode == 0
    installation.execute(f"CREATE ZONE victim (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    yield installation
    assert installation.zonectl("rebalance", "limits", "--zone-moves", "none").returncode == 0


def leader(victim: Installation) -> int:
    """Process whose controllers lead; 0: none does."""
    name = victim.get("/readyz")["controller"]
    return int(name.rpartition("/")[2]) if name else 0


@pytest.fixture
def leading_controller(victim: Installation) -> Iterator[int]:
    """A controller process of its own, beside the one in the server, that leads."""
    work = victim.directory.parent / "controller"
    work.mkdir(exist_ok=True)
    environment = {
        **without_spark(work),
        MARK: victim.mark,
        **victim.of_services,
        "ZONEKEEPER_METASTORE": endpoint(victim),
        "ZONEKEEPER_DATA_DIR": str(work),
    }
    process = spawn([*ZONECTL, "controller"], log=work / "controller.log", env=environment)
    try:
        while (pid := leader(victim)) != process.pid:
            # The server leads until it is killed; it stands by when it is back.
            if pid:
                psutil.Process(pid).send_signal(signal.SIGKILL)
            wait_for("another leader", lambda pid=pid: leader(victim) not in (0, pid))
        yield process.pid
    finally:
        stop(process, 10)


def newest(victim: Installation) -> dict[str, Any]:
    found: dict[str, Any] = victim.get("/api/v1/operations?zone=victim&page_size=1")["operations"][0]
    return found


def half_way(victim: Installation, event: int) -> dict[str, Any] | None:
    """The operation of the change, when some of it moves and some of it waits, or when it is over."""
    detail: dict[str, Any] = victim.get(f"/api/v1/operations/{newest(victim)['operation_id']}?plan=false")
    counts = detail["progress"]["partitions"]
    is_half = detail["over"] or (counts["moving"] and counts["waiting"])
    return detail if detail["catalog_version"] == event and is_half else None


def begun(victim: Installation) -> dict[str, Any]:
    """An operation that adds a replica to each partition, half way; from the start again where it was over
    before anybody had looked."""
    for _ in range(ATTEMPTS):
        victim.execute("ALTER ZONE victim SET (REPLICAS 1)")
        (altered,) = victim.sql("ALTER ZONE victim SET (REPLICAS 2)")
        event = altered["catalog_version"]
        found: dict[str, Any] = wait_for("a move", lambda event=event: half_way(victim, event), pause_s=0.02)
        if not found["over"]:
            return found
    raise AssertionError(f"each of {ATTEMPTS} operations was over before anybody had looked")


def killed_half_way(victim: Installation, kill: Callable[[], bool | None]) -> None:
    """Adds a replica to each partition, kills when some have begun, and looks for the operation's end.

    ``kill`` answers False when it came too late: then all begins again."""
    wait_for("the whole installation", victim.is_whole)
    for _ in range(ATTEMPTS):
        operation = begun(victim)
        targets = [each["target"] for each in victim.partitions("victim")]
        known = {each["operation_id"] for each in victim.get("/api/v1/operations?zone=victim")["operations"]}
        if kill() is not False:
            break
    else:
        raise AssertionError(f"each of {ATTEMPTS} operations was over before anybody was killed")
    # A command that begins without a server says so at once.
    wait_for("the whole installation", victim.is_whole)
    name = operation["operation_id"]
    told = victim.zonectl("operations", "wait", name, "--format", "json", "--timeout", "240", timeout_s=300)
    assert told.returncode == 0, told.stderr
    over = json.loads(told.stdout)
    same = ("operation_id", "kind", "event_revision", "catalog_version", "started", "partitions_to_move")
    assert [over[each] for each in same] == [operation[each] for each in same]
    assert (over["state"], over["over"]) == ("DONE", True)
    assert over["progress"]["partitions"]["done"] == PARTITIONS
    wait_for("the whole installation", victim.is_whole)
    assert [each["stable"] for each in victim.partitions("victim")] == targets
    assert not any(each["pending"] for each in victim.partitions("victim"))
    now = {each["operation_id"] for each in victim.get("/api/v1/operations?zone=victim")["operations"]}
    assert now == known, "and no other operation"


def moving_partition(victim: Installation) -> dict[str, Any] | None:
    return next((each for each in victim.partitions("victim") if each["pending"]), None)


def kill_all(victim: Installation, *words: str) -> None:
    found = victim.processes(*words)
    assert found, words
    for process in found:
        process.send_signal(signal.SIGKILL)


@pytest.mark.thorough("the controller is killed, which carries it out")
@pytest.mark.row("VOL-020", "VOL-089")
@pytest.mark.parametrize(
    "words",
    [("app.cli serve ",), ("--name zonekeeper ",)],
    ids=["server", "metastore"],
)
def test_a_part_of_the_control_plane(victim: Installation, words: tuple[str, ...]) -> None:
    """VOL-020, VOL-089: the same id, the same target, one end; every acknowledged put is there."""
    with writing(victim, "VICTIM") as writer:
        killed_half_way(victim, lambda: kill_all(victim, *words))
    writer.read_back()


@WITH_SPARK
@pytest.mark.row("VOL-020", "VOL-089")
@pytest.mark.soak
@pytest.mark.parametrize("words", [("java", "org.apache.spark"), ("spark.driver",)], ids=["jvm", "driver"])
def test_a_part_of_spark(victim: Installation, words: tuple[str, ...]) -> None:
    """VOL-020, VOL-089: the same."""
    # What is told of Spark may be older than the end of its processes.
    wait_for("Spark", lambda: victim.get("/readyz")["spark"] == "ready" and victim.processes(*words), 240)
    killed_half_way(victim, lambda: kill_all(victim, *words))


@pytest.mark.row("VOL-013", "VOL-014", "VOL-020")
def test_the_leading_controller(victim: Installation, leading_controller: int) -> None:
    """VOL-013, VOL-014, VOL-020: one that runs alone; the server's own goes on with the operation."""
    killed_half_way(victim, lambda: psutil.Process(leading_controller).send_signal(signal.SIGKILL))
    # The operation may have been over a moment before the kill; the dead one's lease has its time then.
    wait_for("another leader", lambda: leader(victim) not in (0, leading_controller))


@pytest.mark.thorough("integration/test_stage_faults kills agents in each stage")
@pytest.mark.row("VOL-020")
def test_a_node_agent(victim: Installation) -> None:
    """VOL-020: its members go with it, and come back with it."""
    killed_half_way(victim, lambda: kill_all(victim, "app.cli", " node ", "--name n2"))


@pytest.mark.thorough("integration/test_stage_faults kills members in each stage")
def test_a_group_member(victim: Installation) -> None:
    zone = victim.get("/api/v1/zones/victim")["zone_id"]

    def kill_one() -> bool:
        moving = moving_partition(victim)
        members = victim.processes("etcd", f"/members/{zone}-{moving['partition']}/") if moving else []
        for member in members[:1]:
            member.send_signal(signal.SIGKILL)
        return bool(members)

    killed_half_way(victim, kill_one)
