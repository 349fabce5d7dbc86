"""Faults of a real installation, with the times of the alerts divided by 30: both judges, a server and a
Prometheus with the shipped rules, let the alert fire, and end it; and the dashboards have something to show."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import ANSWER_S, Installation, wait_for, without_spark, writing
from tests.fixtures.dashboard_queries import dashboard_queries
from tests.fixtures.databases import new_postgres
from tests.fixtures.judged_alerts import DIVISOR, QUICK_ALERTS, Judge, ServerJudge, all_fire, none_fires
from tests.fixtures.local_access import LocalAccess
from tests.fixtures.prometheus import Prometheus, prometheus
from tests.fixtures.second_server import SecondServer
from tests.fixtures.staged_faults import (
    Fault,
    disk_full,
    has_spark,
    majority_lost,
    metastore_restored,
    metastore_stopped,
    move_stuck,
    no_controller,
    node_directory,
    short_certificate,
    spark_away,
)

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow("faults are staged one after the other, and their ends waited for"),
    pytest.mark.thorough("unit/test_alerts judges each fault, and each query of the dashboards is parsed"),
]
UNWATCHED = {"ZONEKEEPER_UP_NODE_SILENCE_S": "0", "ZONEKEEPER_UP_SERVER_SILENCE_S": "0"}
"""Processes stand still for as long as the tests say."""
APART_S = 30.0
SMALL_DISK = "size=600m"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("faults")
    environment = {
        "ZONEKEEPER_CATALOG_URL": new_postgres(postgres_server),
        **without_spark(directory),
        **QUICK_ALERTS,
        **UNWATCHED,
    }
    installation = Installation(directory / "data", environment=environment)
    disk = node_directory(installation, "n3")
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", str(disk)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        installation.start()
        installation.execute("CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)")
        installation.execute("ALTER ZONE orders SET (REPLICAS 3)")
        yield installation
        installation.stop()
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture(scope="module")
def rules(whole: Installation) -> Iterator[Prometheus]:
    """Scrapes every process of ``whole``."""
    directory = whole.directory.with_name("prometheus")
    with prometheus(directory, whole.access, DIVISOR) as running:
        yield running


@pytest.fixture
def small_disk(whole: Installation) -> None:
    """That of n3: it can be filled, and nothing else."""
    if not node_directory(whole, "n3").is_mount():
        pytest.skip("mounting a small file system needs root")


@pytest.fixture
def second(whole: Installation, tmp_path: Path) -> Iterator[LocalAccess]:
    """A server without a controller, which goes on when the first one stands still."""
    server = SecondServer(whole, tmp_path, controllers=False)
    server.start()
    try:
        yield server.access
    finally:
        server.stop()


@pytest.fixture
def with_spark(tmp_path: Path) -> Iterator[Installation]:
    from spark.java import java_path

    home = tmp_path / "java"
    home.symlink_to(java_path().resolve().parents[1])
    environment = {"JAVA_HOME": str(home), "ZONEKEEPER_SPARK_WAIT_S": "0", **QUICK_ALERTS}
    installation = Installation(tmp_path / "data", environment=environment)
    installation.start()
    wait_for("Spark", lambda: has_spark(installation))
    yield installation
    installation.stop()


def stage(installation: Installation, alert: str, fault: Fault, server: ServerJudge, rules: Prometheus) -> None:
    """The alert does not fire before, fires while it is so, and ends afterwards."""
    judges: dict[str, Judge] = {"the server": server, "Prometheus": rules}
    none_fires(judges, alert)
    with fault(installation):
        fired_s = all_fire(judges, alert)
    ended_s = none_fires(judges, alert)
    assert server.resolved(alert)
    print(f"{alert}: fired after {_said(fired_s)}; ended after {_said(ended_s)}")
    assert max(fired_s.values()) - min(fired_s.values()) < APART_S


def _said(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{each_s:.1f} s ({name})" for name, each_s in seconds.items())


@pytest.mark.parametrize(
    ("alert", "fault"),
    [
        ("MetastoreUnreachable", metastore_stopped),
        ("CertificateExpires", short_certificate),
        ("PartitionWithoutMajority", majority_lost),
        ("Divergence", metastore_restored),
        pytest.param("MoveStuck", move_stuck, marks=pytest.mark.soak),
    ],
)
def test_a_fault_is_told_until_it_is_mended(
    whole: Installation, rules: Prometheus, alert: str, fault: Fault
) -> None:
    stage(whole, alert, fault, ServerJudge(whole.get), rules)


def test_every_query_of_the_dashboards_has_a_series(whole: Installation, rules: Prometheus) -> None:
    """Give every query of the dashboards a series with a number in it, at some second of the run."""
    with majority_lost(whole):
        (altered,) = whole.sql("ALTER ZONE orders SET (REPLICAS 2)")
        wait_for("the loss", lambda: rules.values("max(zonekeeper_partitions_without_majority) > 0"))
        wait_for("a move that waits", lambda: rules.values("max(zonekeeper_move_oldest_seconds) > 0"))
    wait_for("the move", lambda: whole.converged(altered))
    with writing(whole, "ORDERS"):
        assert whole.request("POST", "/api/v1/statements", {"sql": "DROP ZONE nobody"}).is_client_error
        assert httpx.get(f"{whole.url}/api/v1/zones", verify=whole.access.verify).status_code == 401
        for name, query in dashboard_queries().items():
            wait_for(f"a series of {name}", partial(rules.has_told, query), pause_s=1)


@pytest.mark.soak
def test_servers_tell_that_no_controller_leads(
    whole: Installation, second: LocalAccess, tmp_path: Path
) -> None:
    with second.client(ANSWER_S) as client, prometheus(tmp_path / "rules", second, DIVISOR) as rules:
        server = ServerJudge(lambda path: client.get(path).raise_for_status().json())
        stage(whole, "NoController", no_controller, server, rules)


@pytest.mark.soak
def test_an_absent_spark_is_told(with_spark: Installation, tmp_path: Path) -> None:
    with prometheus(tmp_path / "rules", with_spark.access, DIVISOR) as rules:
        stage(with_spark, "SparkAway", spark_away, ServerJudge(with_spark.get), rules)


@pytest.mark.soak
@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_told(whole: Installation, rules: Prometheus) -> None:
    stage(whole, "DiskFull", disk_full, ServerJudge(whole.get), rules)
