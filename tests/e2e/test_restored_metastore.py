"""``zonectl up`` on an etcd that was restored from an older backup: no data is lost, everything converges."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import Installation, wait_for, without_spark

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("the metastore is backed up, restored and adopted between moves"),
    pytest.mark.thorough("integration/test_two_stores restores it beside controllers"),
]

MOVED = ("grown", "shrunk", "late")
STORED = "bulky"
"""Kept by store servers."""


def refusing(installation: Installation) -> set[str]:
    """Nodes whose store server has said that the metastore is older than what it finished."""
    logs = {path.stem: path.read_text() for path in (installation.directory / "logs").glob("n*.log")}
    return {name for name, text in logs.items() if "the metastore was restored from a backup" in text}


@pytest.mark.row("I3-049", "I3-050")
def test_a_restored_etcd_is_adopted_and_no_data_is_lost(tmp_path: Path) -> None:
    """I3-049, I3-050: groups grew, shrank and were founded after the backup. Members that it does not know keep
    their data while nothing is written, and after the adoption until their group has spoken."""
    installation = Installation(tmp_path / "data", environment=without_spark(tmp_path))
    etcd, backup = installation.directory / "etcd", tmp_path / "backup"
    try:
        installation.start()
        installation.execute("CREATE ZONE grown (PARTITIONS 1, REPLICAS 1)")
        installation.execute("CREATE ZONE shrunk (PARTITIONS 1, REPLICAS 3)")
        installation.execute(f"CREATE ZONE {STORED} (PARTITIONS 4, REPLICAS 2) STORAGE PROFILES ['bulk']")
        installation.stop()
        shutil.copytree(etcd, backup)

        installation.start()
        installation.execute("ALTER ZONE grown SET (REPLICAS 3)")
        installation.execute("ALTER ZONE shrunk SET (REPLICAS 1)")
        installation.execute("CREATE ZONE late (PARTITIONS 1, REPLICAS 3)")
        installation.execute(f"ALTER ZONE {STORED} SET (REPLICAS 3)")
        for zone in (*MOVED, STORED):
            for number in range(8):
                path = f"/api/v1/zones/{zone}/kv/key-{number}"
                value = {"value": f"{zone} {number}"}
                installation.request("PUT", path, value).raise_for_status()
        installation.stop()
        shutil.rmtree(etcd)
        shutil.copytree(backup, etcd)

        installation.start_diverged()
        refused = installation.zonectl("sql", "-e", "CREATE ZONE more")
        assert refused.returncode == 1
        assert "METASTORE_DIVERGED" in refused.stderr
        assert "zonectl metastore adopt" in refused.stderr
        assert "diverged" in installation.zonectl("status").stdout
        wait_for("refusals", lambda: len(refusing(installation)) == installation.nodes)
        unserved = installation.request("GET", f"/api/v1/zones/{STORED}/kv/key-0")
        assert unserved.status_code == httpx.codes.SERVICE_UNAVAILABLE

        adopted = installation.zonectl("metastore", "adopt", "--yes", "--format", "json")
        assert adopted.returncode == 0, adopted.stderr
        version = json.loads(adopted.stdout)["catalog_version"]
        ids = {each["name"]: each["zone_id"] for each in installation.get("/api/v1/zones")["zones"]}
        for zone in (*MOVED, STORED):
            result = {"zone_id": ids[zone.upper()], "catalog_version": version}
            wait_for(f"convergence of {zone}", lambda result=result: installation.converged(result))
        for zone, replicas in zip((*MOVED, STORED), (3, 1, 3, 3), strict=True):
            stable = [each["stable"] for each in installation.partitions(zone)]
            assert {len(each["peers"]) for each in stable} == {replicas}
            for number in range(8):
                found = installation.get(f"/api/v1/zones/{zone}/kv/key-{number}")
                assert found["value"] == f"{zone} {number}"
    finally:
        installation.kill_up()
        installation.assert_nothing_is_left()
