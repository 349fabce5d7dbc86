"""``kill -9`` of each part during an ALTER: it comes back, converges, and no acknowledged write is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FunctionType

import pytest

from tests.e2e.installation import Installation, wait_for, writing

pytestmark = pytest.mark.timeout(400)
PARTITIONS = 8


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    whole = Installation(tmp_path_factory.mktemp("kill") / "data")
    whole.start()
    wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready", 90)
    yield whole
    whole.stop()


def kill_parent(victim: Installation) -> None:
    victim.kill_up()
    victim.assert_nothing_is_left()
    victim.start()


def kill_server(victim: Installation) -> None:
    (server,) = victim.processes("app.cli", " serve ")
    server.send_signal(signal.SIGKILL)


def kill_metastore(victim: Installation) -> None:
    (etcd,) = victim.processes("--name zonekeeper ")
    etcd.send_signal(signal.SIGKILL)


def kill_spark(victim: Installation) -> None:
    """While a JVM starts, its launcher is one too."""
    for jvm in victim.processes("java", "org.apache.spark"):
        jvm.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_parent, kill_server, kill_metastore, kill_spark])
def test_kill_during_an_alter(victim: Installation, kill: FunctionType) -> None:
    """I3-006, I3-016, I3-034, I3-050: it converges, the keys are all there, nobody is left over."""
    wait_for("the whole installation", victim.is_whole, 60)
    zone = kill.__name__.upper()
    victim.execute(f"CREATE ZONE {zone} (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    with writing(victim, zone) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
        (altered,) = victim.sql(f"ALTER ZONE {zone} SET (REPLICAS 3)")
        wait_for("a move", lambda: any(each["pending"] for each in victim.partitions(zone)), 60, 0.02)
        kill(victim)
        wait_for("convergence after the kill", lambda: victim.converged(altered), 180)
        before = len(writer.acknowledged)
        wait_for("writes after the kill", lambda: len(writer.acknowledged) > before + 20)
    for partition in victim.partitions(zone):
        assert sorted(partition["stable"]["peers"]) == ["n1", "n2", "n3"]
        assert partition["pending"] is None
        assert [member["state"] for member in partition["members"]] == ["RUNNING"] * 3
    writer.read_back()
    members = victim.processes("etcd", "/members/")
    assert len(members) == PARTITIONS * 3
    print(f"{kill.__name__}: {len(writer.acknowledged)} acknowledged, {len(writer.errors)} refused or unknown, "
          f"longest stall {writer.longest_stall_s:.2f} s")  # fmt: skip
    victim.execute(f"DROP ZONE {zone}")
    wait_for("the members' end", lambda: not victim.processes("etcd", "/members/"), 30)
    # Nobody is left over: as many of each kind as at the start.
    for words, count in ((("app.cli", " up "), 1), (("app.cli", " serve "), 1), (("app.cli", " node "), 3)):
        assert len(victim.processes(*words)) == count, words
    wait_for("Spark", lambda: victim.get("/readyz")["spark"] == "ready", 90)
    assert len(victim.processes("java", "org.apache.spark")) == 1
