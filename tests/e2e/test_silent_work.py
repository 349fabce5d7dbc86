"""A3: with the shipped thresholds normal work raises no alert, neither by a server nor by Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.alerts.alert_rows import BY_NAME
from tests.e2e.installation import ANSWER_S, Installation, wait_for, writing
from tests.fixtures.alert_recorder import AlertRecorder, recorded
from tests.fixtures.installation_dumps import endpoint
from tests.fixtures.judged_alerts import ServerJudge
from tests.fixtures.prometheus import prometheus
from tests.fixtures.second_server import SecondServer

pytestmark = [
    pytest.mark.timeout(1_200),
    pytest.mark.slow("each kind of normal work is done once, with Spark"),
    pytest.mark.soak,
]
ALWAYS = {"Watchdog"}
"""Alerts that fire by design: their absence shows that no alert arrives."""


@pytest.fixture
def whole(tmp_path: Path, empty_postgres: str) -> Iterator[Installation]:
    """Two servers need a catalog that both reach."""
    environment = {"ZONEKEEPER_CATALOG_URL": empty_postgres, "ZONEKEEPER_SPARK_WAIT_S": "0"}
    installation = Installation(tmp_path / "data", environment=environment)
    installation.start()
    yield installation
    installation.stop()


def test_normal_work_alarms_nobody(whole: Installation, tmp_path: Path) -> None:
    """Spark starts; ALTER 1 -> 3 -> 1; a drain; a planned restart of a node; a compaction; another controller
    takes over. No condition holds for as long as its alert needs."""
    second = SecondServer(whole, tmp_path, controllers=True)
    with (
        prometheus(tmp_path / "prometheus", whole.access, divisor=1) as rules,
        recorded(ServerJudge(whole.get).states) as by_server,
        recorded(rules.states) as by_rules,
    ):
        second.start()
        try:
            wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready")
            work(whole)
        finally:
            second.stop()
        wait_for("the rules", lambda: by_rules.fired >= ALWAYS)
    assert by_server.fired == set()
    assert by_rules.fired == ALWAYS
    assert by_server.looks > 10
    assert too_long(by_server) == {}


def too_long(recorder: AlertRecorder) -> dict[str, float]:
    """Alerts that were pending for as long as it takes to fire, and did not."""
    return {
        name: pending_s for name, pending_s in recorder.pending_s.items() if pending_s > BY_NAME[name].for_s
    }


def work(whole: Installation) -> None:
    whole.execute("CREATE ZONE calm (PARTITIONS 4, REPLICAS 1)")
    with writing(whole, "CALM") as writer:
        whole.execute("ALTER ZONE calm SET (REPLICAS 3)")
        whole.execute("ALTER ZONE calm SET (REPLICAS 1)")
        drain_and_return(whole, "n3")
        restart(whole, "n1")
        compact(whole)
        lose_the_controller(whole)
        whole.execute("ALTER ZONE calm SET (REPLICAS 2)")
    writer.read_back()


def drain_and_return(whole: Installation, name: str) -> None:
    for command in ("drain", "undrain"):
        done = whole.zonectl("node", command, name, *(("--wait",) if command == "drain" else ()))
        assert done.returncode == 0, done.stderr


def restart(whole: Installation, name: str) -> None:
    """Restart the node as a service manager does; `up` starts it again."""
    (agent,) = whole.processes("app.cli", " node ", f"--name {name}")
    agent.terminate()

    def renewed() -> bool:
        return any(each.pid != agent.pid for each in whole.processes("app.cli", " node ", f"--name {name}"))

    wait_for("the node's next process", renewed)
    wait_for("every node", whole.is_whole)


def compact(whole: Installation) -> None:
    """All that etcd keeps of earlier revisions goes, and its file shrinks."""
    url = f"https://{endpoint(whole)}/v3"
    revision = asked(whole, f"{url}/maintenance/status")["header"]["revision"]
    asked(whole, f"{url}/kv/compaction", {"revision": revision, "physical": True})
    asked(whole, f"{url}/maintenance/defragment")


def asked(whole: Installation, url: str, body: object = None) -> Any:
    answer = httpx.post(url, json=body or {}, timeout=ANSWER_S, verify=whole.machines)
    return answer.raise_for_status().json()


def lose_the_controller(whole: Installation) -> None:
    """The leading one is killed with its server, and the other one takes over."""
    before = whole.get("/readyz")["controller"]
    (server,) = whole.processes("app.cli", " serve ", "--migrate")
    server.kill()
    wait_for("another controller", lambda: whole.get("/readyz")["controller"] not in (before, None, ""))
    wait_for("every node", whole.is_whole)
