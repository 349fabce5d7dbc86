"""``kill -9`` of each part during an ALTER: it comes back, converges, and no acknowledged write is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FunctionType

import psutil
import pytest

from tests.e2e.installation import WITH_SPARK, Installation, wait_for, writing
from tests.fixtures.installation_kills import kill_metastore, kill_parent, kill_server, kill_spark

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("a process is killed during a move, and the whole installation comes back"),
]
PARTITIONS = 8


@contextmanager
def standing_still(victim: Installation, name: str) -> Iterator[None]:
    """The node's agent, without which no member of its node joins or is counted as running."""
    (agent,) = victim.processes("app.cli", " node ", f"--name {name}")
    agent.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            agent.resume()


def rests(victim: Installation, zone: str) -> bool:
    """Every partition on all nodes, with members that run."""
    return all(
        sorted(each["stable"]["peers"]) == ["n1", "n2", "n3"]
        and each["pending"] is None
        and [member["state"] for member in each["members"]] == ["RUNNING"] * 3
        for each in victim.partitions(zone)
    )


def one_spark(victim: Installation) -> bool:
    """True if Spark is ready with one JVM; readiness alone may be older than that JVM's end."""
    ready = victim.get("/readyz")["spark"] == "ready"
    return ready and len(victim.processes("java", "org.apache.spark")) == 1


@WITH_SPARK
@pytest.mark.row("I3-006", "I3-016", "I3-034", "I3-050")
@pytest.mark.soak
@pytest.mark.parametrize("kill", [kill_parent, kill_server, kill_metastore, kill_spark])
def test_kill_during_an_alter(installation: Installation, kill: FunctionType) -> None:
    """I3-006, I3-016, I3-034, I3-050: converge after the kill, with all keys and without a process left
    over."""
    victim = installation
    wait_for("the whole installation", victim.is_whole)
    zone = kill.__name__.upper()
    victim.execute(f"CREATE ZONE {zone} (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    with writing(victim, zone) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
        # Otherwise all may be over before anybody has looked.
        with standing_still(victim, "n3"):
            (altered,) = victim.sql(f"ALTER ZONE {zone} SET (REPLICAS 3)")
            wait_for("a move", lambda: any(each["pending"] for each in victim.partitions(zone)), pause_s=0.02)
            assert not victim.converged(altered)
            kill(victim)
        wait_for("convergence after the kill", lambda: victim.converged(altered), 180)
        before = len(writer.acknowledged)
        wait_for("writes after the kill", lambda: len(writer.acknowledged) > before + 20)
    wait_for("rest", lambda: rests(victim, zone))
    writer.read_back()
    members = victim.processes("etcd", "/members/")
    assert len(members) == PARTITIONS * 3
    print(f"{kill.__name__}: {len(writer.acknowledged)} acknowledged, {len(writer.errors)} refused or unknown, "
          f"longest stall {writer.longest_stall_s:.2f} s")  # fmt: skip
    victim.execute(f"DROP ZONE {zone}")
    wait_for("the members' end", lambda: not victim.processes("etcd", "/members/"))
    # Nobody is left over: as many of each kind as at the start.
    for words, count in ((("app.cli", " up "), 1), (("app.cli serve ",), 1), (("app.cli", " node "), 3)):
        assert len(victim.processes(*words)) == count, words
    wait_for("one Spark", lambda: one_spark(victim), 240)
