"""The runbook's page for partitions without a majority: its commands in its order, and nothing beyond them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.e2e.installation import Installation, Writer, wait_for, writing
from tests.fixtures.judged_alerts import fires
from tests.fixtures.recovery_commands import freeze
from tests.fixtures.runbook_page import Follower, RunbookPage

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow("majorities are killed, and leases, elections and alerts waited for"),
    pytest.mark.thorough("test_recovery does by the API what the page says"),
]
ALERT = "PartitionWithoutMajority"


class Loss:
    """Two of the three voters of a zone, gone at once: what the alert says, and what the world does next."""

    def __init__(self, installation: Installation, zone: str) -> None:
        self._installation = installation
        installation.execute(f"CREATE ZONE {zone} (PARTITIONS 1, REPLICAS 3)")
        with writing(installation, zone.upper()) as self.writer:
            wait_for("writes", lambda: len(self.writer.acknowledged) > 50)
        (partition,) = installation.partitions(zone.upper())
        self.nodes: Sequence[str] = partition["stable"]["peers"][1:]
        self._agents = [freeze(installation, name) for name in self.nodes]

    def start_nodes(self) -> None:
        for agent in self._agents:
            agent.resume()

    def labels(self) -> dict[str, str]:
        """Labels of the alert, once it fires."""
        labels: dict[str, str] = fires(self._installation, ALERT)["labels"]
        return labels


@contextmanager
def lost_zone(installation: Installation) -> Iterator[Loss]:
    wait_for("every node", lambda: all(each["alive"] for each in installation.get("/api/v1/nodes")["nodes"]))
    loss = Loss(installation, "lost")
    try:
        yield loss
    finally:
        loss.start_nodes()
        installation.execute("DROP ZONE lost")


def confirm(follower: Follower, loss: Loss) -> None:
    """The page's commands show what it says that they show."""
    states, status = follower.follow("How to confirm")
    assert states.returncode == 1, told(states)
    assert status.returncode == 1, told(status)
    assert f"ALERT {ALERT} since " in status.stdout
    assert "READ_ONLY" in states.stdout
    gone = {line.split()[0] for line in status.stdout.splitlines() if line.split()[1:2] == ["NO"]}
    assert gone == set(loss.nodes), told(status)


def is_judged_alike(installation: Installation, loss: Loss) -> None:
    """Readiness, alerts and the doctor tell of the same partitions and nodes."""
    ready = installation.get("/readyz")
    assert ready["state"] == "degraded"
    told_of = {(each["cause"].partition(":")[0], *each["labels"].values()) for each in ready["degraded"]}
    assert told_of >= {("NO_MAJORITY", "LOST"), *(("NODE_DOWN", node) for node in loss.nodes)}
    pages = [each for each in ready["degraded"] if each["alert"] == ALERT]
    assert [(each["severity"], each["since"] is not None) for each in pages] == [("page", True)]
    assert installation.zonectl("alerts").returncode == 1
    command = ("doctor", "-o", "json", "--data-dir", str(installation.directory))
    expected = {"zones: NO_MAJORITY LOST", *(f"nodes: NODE_DOWN {node}" for node in loss.nodes)}

    def examined() -> bool:
        """A busy server may not answer within the doctor's limit."""
        doctor = installation.zonectl(*command)
        names = {check["name"] for check in json.loads(doctor.stdout)["checks"]}
        return doctor.returncode == 2 and names >= expected

    wait_for("the doctor to say so", examined)


def is_over(follower: Follower, writer: Writer) -> None:
    for done in follower.follow("How to know that it is over"):
        assert done.returncode == 0, told(done)
    writer.read_back()


def told(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_the_page_when_the_nodes_come_back(five_nodes: Installation) -> None:
    """Keep what was acknowledged before the loss, in the same group as before."""
    with lost_zone(five_nodes) as loss:
        follower = Follower(RunbookPage(ALERT), loss.labels(), five_nodes.of_commands)
        confirm(follower, loss)
        is_judged_alike(five_nodes, loss)
        (before,) = five_nodes.partitions("LOST")
        loss.start_nodes()
        (waited,) = follower.follow("The nodes come back")
        assert waited.returncode == 0, told(waited)
        is_over(follower, loss.writer)
        assert five_nodes.partitions("LOST")[0]["stable"] == before["stable"]


def test_the_page_when_the_nodes_never_come_back(five_nodes: Installation) -> None:
    """The group goes on without them, with three replicas elsewhere and every acknowledged write."""
    with lost_zone(five_nodes) as loss:
        follower = Follower(RunbookPage(ALERT), loss.labels(), five_nodes.of_commands)
        confirm(follower, loss)
        planned, reset = follower.follow("They never come back")
        assert planned.returncode == 0, told(planned)
        assert reset.returncode == 0, told(reset)
        assert "1/1 accept writes" in reset.stderr
        is_over(follower, loss.writer)
        peers = five_nodes.partitions("LOST")[0]["stable"]["peers"]
        assert len(peers) == 3
        assert not set(peers) & set(loss.nodes)
