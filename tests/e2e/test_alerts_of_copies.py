"""A replica that is broken, and a store server that takes no part: tickets fire while it is so, and end."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.fault_scenes import held_down, log_flipped, members
from tests.fixtures.judged_alerts import ServerJudge

LIMIT_S = 300
EXPECTED = {
    ("ReplicaBroken", "GROUPED"),
    ("PartitionDegraded", "GROUPED"),
    ("PartitionDegraded", "KEPT"),
    ("StoreServerDown", "n2"),
}

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("integration/test_damaged_copies mends them, and unit/test_alerts judges each fault"),
]


def no_store_server(installation: Installation, name: str) -> AbstractContextManager[None]:
    """Kill the node's store server for the length of the block, each time that its agent has started it."""
    return held_down(lambda: installation.processes("app.cli", " store serve ", f"--name {name}"))


def member_url(installation: Installation, node: str) -> str:
    """Peer URL of the only partition's voter on that node while it runs; otherwise empty."""
    (partition,) = installation.partitions("GROUPED")
    found = [m for m in partition["members"] if m["node"] == node and m["state"] == "RUNNING"]
    return str(found[0]["peer_url"]) if found and found[0]["role"] == "VOTER" else ""


@pytest.mark.slow("a member is damaged twice, and alerts are waited for")
def test_damaged_copies_and_a_dead_store_server_are_told_until_they_are_mended(
    installation: Installation,
) -> None:
    installation.execute("CREATE ZONE grouped (PARTITIONS 1, REPLICAS 3)", LIMIT_S)
    installation.execute("CREATE ZONE kept (PARTITIONS 2, REPLICAS 3) STORAGE PROFILES ['bulk']", LIMIT_S)
    judge = ServerJudge(installation.get)

    def told(state: str) -> set[tuple[str, str]]:
        names = {name for name, _ in EXPECTED}
        alerts = [alert for name in names for alert in judge.alerts(name) if alert["state"] == state]
        return {(alert["name"], label) for alert in alerts for label in alert["labels"].values()}

    with writing(installation, "GROUPED") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 60)
        before = wait_for("the member", lambda: member_url(installation, "n2"))
        with log_flipped(installation):
            wait_for("another member", lambda: member_url(installation, "n2") not in ("", before), LIMIT_S)
        count = len(writer.acknowledged)
        wait_for("writes", lambda: len(writer.acknowledged) > count + 60)
        with log_flipped(installation), no_store_server(installation, "n2"):
            wait_for("all to fire", lambda: told("firing") >= EXPECTED, LIMIT_S, pause_s=0.5)
            # Its agent tries again now and then, and it ends at once.
            wait_for("no member", lambda: not members(installation, "n2"))
            count = len(writer.acknowledged)
            wait_for("writes", lambda: len(writer.acknowledged) > count)
        asked = installation.zonectl("recovery", "restart", "grouped", "--cleanup", "--node", "n2")
        assert asked.returncode == 0, asked.stdout + asked.stderr
        wait_for("the end of all", lambda: not told("firing") | told("pending"), LIMIT_S, pause_s=0.5)
        assert told("resolved") >= EXPECTED
        wait_for("the member", lambda: member_url(installation, "n2"))
    assert writer.errors == []
    writer.read_back()
