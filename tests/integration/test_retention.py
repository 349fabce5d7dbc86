"""A server forgets versions and audit records that are older than its settings say, by itself."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from catalog.core.retention import KEPT_DAYS
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.catalog_store import utc_now_us
from catalog.store.migrate import migrate
from catalog.store.retention import DAY_US
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.script_runner import ScriptRunner

pytestmark = pytest.mark.timeout(300)


def written_days_ago(url: str, days: int, script: str) -> None:
    store = CatalogStore.open(url, lambda: utc_now_us() - days * DAY_US)
    ScriptRunner(CatalogService(store.unit_of_work)).run(script, (Node("n1"),))
    store.close()


def audited_versions(client: httpx.Client) -> list[int]:
    records = client.get("/api/v1/audit", params={"limit": 100}).raise_for_status().json()["records"]
    return sorted(record["catalog_version_after"] for record in records)


def test_a_server_forgets_what_is_old(etcd_server: Etcd, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    migrate(url)
    written_days_ago(
        url, KEPT_DAYS + 2, "CREATE ZONE a; CREATE ZONE b; ALTER ZONE a SET (REPLICAS 2); DROP ZONE b"
    )
    written_days_ago(url, KEPT_DAYS - 2, "CREATE ZONE c")
    with (
        serving(tmp_path, etcd_server, Keyspace("test-retention/"), url) as (server,),
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        deadline = time.monotonic() + 120
        while (versions := audited_versions(client)) != [5] and time.monotonic() < deadline:
            time.sleep(0.5)
        assert versions == [5]
        zones = client.get("/api/v1/zones").raise_for_status().json()["zones"]
        assert {zone["name"]: zone["replicas"] for zone in zones}.keys() == {"A", "C"}
    store = CatalogStore.open(url)
    assert [record.version for record in store.history()] == [4, 5]
    store.close()
