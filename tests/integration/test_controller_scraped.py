"""A controller of its own registers, is listed and answers requests that carry the scrapers' token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.security.token_secrets import keep_scrape_token
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.controller_process import controlling
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.promtool import Promtool
from tests.fixtures.up_process import until

pytestmark = pytest.mark.timeout(600)
PATIENCE_S = 120.0


def targets(server: ApiServer) -> dict[str, str]:
    """Addresses by role, as service discovery reads them."""
    listed = httpx.get(f"{server.url}/api/v1/metrics/targets", trust_env=False, timeout=60).json()
    return {entry["labels"]["role"]: _url(entry) for entry in listed}


def _url(entry: dict[str, Any]) -> str:
    labels = entry["labels"]
    return f"{labels['__scheme__']}://{entry['targets'][0]}{labels['__metrics_path__']}"


@pytest.mark.thorough("test_metrics_scraped scrapes a server and a node")
def test_a_controller_is_listed_and_scraped(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path, promtool: Promtool
) -> None:
    token, file = tmp_path / "metrics.token", tmp_path / "targets.json"
    keep_scrape_token(token)
    settings = {"ZONEKEEPER_METRICS_TARGETS": str(file)}
    catalog = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, own_etcd, keyspace, catalog, environment=settings) as (server,):
        until(lambda: targets(server).keys() == {"server"}, PATIENCE_S, lambda: str(targets(server)))
        with controlling(tmp_path, own_etcd, keyspace, {"ZONEKEEPER_METRICS_TOKEN_FILE": str(token)}):
            until(lambda: "controller" in targets(server), PATIENCE_S, lambda: str(targets(server)))
            url = targets(server)["controller"]
            assert httpx.get(url, trust_env=False, timeout=60).status_code == 401
            shown = {"Authorization": f"Bearer {token.read_text().strip()}"}
            answer = httpx.get(url, trust_env=False, timeout=60, headers=shown)
            assert 'zonekeeper_build_info{role="controller"' in answer.text
            assert promtool("check", "metrics", given=answer.text) == ""
            until(lambda: url in map(_url, json.loads(file.read_text())), PATIENCE_S)
        until(lambda: targets(server).keys() == {"server"}, PATIENCE_S, lambda: str(targets(server)))
        until(lambda: url not in map(_url, json.loads(file.read_text())), PATIENCE_S)
