"""``zonectl up`` is scraped as the documentation says, and answers whatever has failed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import without_spark
from tests.fixtures.local_access import LocalAccess
from tests.fixtures.promtool import Promtool
from tests.fixtures.up_process import ROOT, SERVED_WITHIN_S, Up, starting, until

pytestmark = pytest.mark.timeout(600)
PAGE = (ROOT / "docs" / "metrics.md").read_text()
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One node, one zone, and no Spark."""
    folder = tmp_path_factory.mktemp("quiet")
    quiet = {**without_spark(folder), "ZONEKEEPER_CONTEXTS": str(folder / "contexts.json")}
    with starting() as run:
        process = run("--nodes", "1", environment=quiet).served()
        until(lambda: process.living() == 1, SERVED_WITHIN_S, process.printed)
        made = process.ctl("sql", "-e", "CREATE ZONE orders (PARTITIONS 2)", "--wait", "--timeout", "90")
        assert made.returncode == 0, made.stderr
        yield process


def scraped(up: Up) -> str:
    with LocalAccess.of(up.directory).client(60) as client:
        answer = client.get("/metrics")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text


def scraper(up: Up) -> dict[str, str]:
    return {"Authorization": f"Bearer {(up.directory / 'metrics.token').read_text().strip()}"}


def number(up: Up, series: str) -> float | None:
    """Value of one series, spelt as Prometheus does; None: it is absent."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", scraped(up), re.M)
    return float(found[1]) if found else None


def until_is(up: Up, series: str, wanted: Callable[[float | None], bool]) -> None:
    until(lambda: wanted(number(up, series)), LIMIT_S, lambda: f"{series} is {number(up, series)}")


def commands() -> list[str]:
    """Commands of the documentation, one a line."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


def test_the_documented_commands_scrape_as_a_user_who_can_do_no_more(up: Up, tmp_path: Path) -> None:
    access = LocalAccess.of(up.directory)
    (tmp_path / "zonekeeper-data").symlink_to(up.directory)
    authority = json.loads((up.directory / "run.json").read_text())["authority"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "URL": access.url, "CA": authority, "PATH": path}
    answer = ""
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        answer = done.stdout
    assert 'zonekeeper_build_info{role="server"' in answer
    password = (tmp_path / "metrics.password").read_text().strip()
    with httpx.Client(base_url=access.url, verify=access.verify, trust_env=False, timeout=60) as client:
        assert client.get("/metrics").status_code == 401
        client.auth = httpx.BasicAuth("prometheus", password)
        assert client.get("/metrics").status_code == 200
        assert client.put("/api/v1/zones/ORDERS/kv/key", json={"value": "v"}).status_code == 403
    assert number(up, 'zonekeeper_logins_total{method="password",outcome="ok"}') == 3
    assert (number(up, 'zonekeeper_refusals_total{code="UNAUTHENTICATED"}') or 0) >= 1
    assert number(up, 'zonekeeper_refusals_total{code="PRIVILEGE_MISSING"}') == 1


def test_the_scrapers_token_opens_the_metrics_and_nothing_else(up: Up) -> None:
    access = LocalAccess.of(up.directory)
    plain = str(json.loads((up.directory / "run.json").read_text())["addresses"]["health"]).removesuffix(
        "/livez"
    )
    with httpx.Client(verify=access.verify, trust_env=False, timeout=60, headers=scraper(up)) as client:
        assert 'zonekeeper_build_info{role="server"' in client.get(f"{access.url}/metrics").text
        statuses = [
            client.get(f"{plain}/metrics").status_code,
            client.post(f"{access.url}/metrics").status_code,
            client.get(f"{access.url}/api/v1/zones").status_code,
            client.get(f"{access.url}/console/").status_code,
        ]
    assert statuses == [403, 401, 401, 401]


def test_promtool_accepts_a_scrape(up: Up, promtool: Promtool) -> None:
    assert promtool("check", "metrics", given=scraped(up)) == ""


def test_what_is_done_is_counted(up: Up) -> None:
    before = number(up, 'zonekeeper_statements_total{code="",kind="SHOW",outcome="ok"}') or 0
    assert up.ctl("sql", "-e", "SHOW ZONES").returncode == 0
    assert up.ctl("sql", "-e", "DROP ZONE nobody").returncode != 0
    assert up.ctl("kv", "put", "orders", "key", "value").returncode == 0
    assert number(up, 'zonekeeper_statements_total{code="",kind="SHOW",outcome="ok"}') == before + 1
    refused = 'zonekeeper_statements_total{code="ZONE_NOT_FOUND",kind="DROP_ZONE",outcome="refused"}'
    assert number(up, refused) == 1
    assert number(up, 'zonekeeper_puts_total{code="",outcome="ok"}') == 1
    route = "/api/v1/zones/{zone:segment}/kv/{key:key}"
    assert number(up, f'zonekeeper_http_requests_total{{method="PUT",route="{route}",status="200"}}') == 1
    assert number(up, 'zonekeeper_placements_total{engine="local",outcome="ok"}') == 1
    until_is(up, 'zonekeeper_partitions{state="DONE"}', lambda count: count == 2)
    assert "kv/key" not in scraped(up)


@pytest.mark.thorough("unit/test_metrics/test_node_measures")
@pytest.mark.slow("members are asked for what their disks take once a minute")
def test_a_node_tells_of_its_members_at_its_own_address(up: Up, promtool: Promtool) -> None:
    with LocalAccess.of(up.directory).client(60) as client:
        targets = client.get("/api/v1/metrics/targets").json()
    (node,) = [entry for entry in targets if entry["labels"]["role"] == "node"]
    url = f"{node['labels']['__scheme__']}://{node['targets'][0]}{node['labels']['__metrics_path__']}"

    def answer(headers: Mapping[str, str]) -> httpx.Response:
        access = LocalAccess.of(up.directory)
        return httpx.get(url, timeout=60, trust_env=False, verify=access.verify, headers=headers)

    assert answer({}).status_code == 401
    assert answer(LocalAccess.of(up.directory).headers).status_code == 401

    def text() -> str:
        return answer(scraper(up)).text

    until(lambda: 'zonekeeper_node_members{state="RUNNING"} 2.0' in text(), LIMIT_S, text)
    assert "zonekeeper_node_leads 2.0" in text()
    assert promtool("check", "metrics", given=text()) == ""
    assert re.search(r"^zonekeeper_node_disk_free_bytes [1-9]", text(), re.M)
    synced = re.compile(r"^zonekeeper_node_member_fsyncs_total [1-9]", re.M)

    def has_synced() -> bool:
        """Put keys, as members without writes sync nothing, and check that a sync is counted."""
        for key in ("first", "second", "third"):
            assert up.ctl("kv", "put", "orders", key, "value").returncode == 0
        return synced.search(text()) is not None

    until(has_synced, 2 * LIMIT_S, text)


def test_without_the_metastore_it_answers_with_what_is_known(up: Up) -> None:
    """The last test of the file."""
    etcd = up.pid_of("etcd")
    until_is(up, "zonekeeper_metastore_up", lambda value: value == 1)
    os.kill(etcd, signal.SIGSTOP)
    try:
        until_is(up, "zonekeeper_metastore_up", lambda value: value == 0)
        until_is(up, "zonekeeper_mirror_age_seconds", lambda age: age is not None and age > 5)
        assert number(up, 'zonekeeper_partitions{state="DONE"}') == 2
    finally:
        os.kill(etcd, signal.SIGCONT)
    until_is(up, "zonekeeper_metastore_up", lambda value: value == 1)
    until_is(up, "zonekeeper_mirror_age_seconds", lambda age: age is not None and age < 5)
