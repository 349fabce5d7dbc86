"""Two servers, each with a controller, over one PostgreSQL and one etcd, while both are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.installation import ANSWER_S, MARK, WITHOUT_TLS, Installation, wait_for, without_spark, writing
from tests.fixtures.ports import free_block

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("two servers are started and killed in turns")]
ZONES = 4


@pytest.fixture
def whole(tmp_path: Path, empty_postgres: str) -> Iterator[Installation]:
    environment = {"ZONEKEEPER_CATALOG_URL": empty_postgres, **without_spark(tmp_path)}
    installation = Installation(tmp_path / "data", environment=environment)
    installation.start()
    yield installation
    installation.stop()


class SecondServer:
    """Another ``zonectl serve --controllers`` beside the one of ``up``."""

    def __init__(self, whole: Installation, directory: Path) -> None:
        (server,) = whole.processes("app.cli", " serve ")
        line = server.cmdline()
        self.port = free_block(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        metastore = line[line.index("--metastore") + 1]
        self._command = [sys.executable, "-m", "app.cli", "serve", "--controllers", "--port", str(self.port)]
        self._command += ["--metastore", metastore, "--data-dir", str(directory)]
        self._environment = {**os.environ, **whole.environment, **whole.of_services, MARK: whole.mark}
        self._log = directory / "second.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        wait_for("the second server", self._answers)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(120)

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/readyz", trust_env=False, timeout=ANSWER_S, verify=WITHOUT_TLS)
            return answer.status_code == 200
        except httpx.TransportError:
            return False


@pytest.mark.row("I3-002", "I3-004", shows="service")
def test_two_servers_and_two_controllers(whole: Installation, tmp_path: Path) -> None:
    """I3-002, I3-004: every statement has one effect or a coded refusal; both die, and everything converges."""
    second = SecondServer(whole, tmp_path)
    try:
        second.start()
        urls = (whole.url, second.url)
        answers = _everywhere(urls, [f"CREATE ZONE z{n} (PARTITIONS 2, REPLICAS 1)" for n in range(ZONES)])
        for pair in answers:
            assert sorted(answer.status_code for answer in pair) == [200, 409]
            (refused,) = [answer.json() for answer in pair if answer.status_code == 409]
            assert refused["name"] == "ZONE_ALREADY_EXISTS"
        versions = [answer.json()["results"][0]["catalog_version"] for pair in answers for answer in pair
                    if answer.status_code == 200]  # fmt: skip
        assert sorted(versions) == list(range(1, ZONES + 1))
        with writing(whole, "Z0") as writer:
            wait_for("writes", lambda: len(writer.acknowledged) > 20)
            for url, zone in ((whole.url, 0), (second.url, 1)):
                _run(url, f"ALTER ZONE z{zone} SET (REPLICAS 3)")
            second.kill()
            second.start()
            _run(second.url, "ALTER ZONE z2 SET (REPLICAS 3)")
            (first,) = whole.processes("app.cli", " serve ", "--migrate")
            first.kill()
            _run(second.url, "ALTER ZONE z3 SET (REPLICAS 2)")
            for zone, peers in ((0, 3), (1, 3), (2, 3), (3, 2)):
                wait_for(
                    f"convergence of z{zone}",
                    lambda zone=zone, peers=peers: _placed(second.url, f"Z{zone}") == {peers},
                    120,
                )
        wait_for("the first server", whole.is_whole)
        writer.read_back()
        # Both know the same catalog, and go on.
        seen = [_get(url, "/api/v1/zones")["catalog_version"] for url in urls]
        assert seen == [ZONES + 4] * 2
    finally:
        second.stop()


def _everywhere(urls: tuple[str, ...], statements: list[str]) -> list[list[httpx.Response]]:
    with ThreadPoolExecutor(len(urls)) as threads:
        return [list(threads.map(lambda url, sql=sql: _post(url, sql), urls)) for sql in statements]


def _post(url: str, sql: str) -> httpx.Response:
    return httpx.post(
        f"{url}/api/v1/statements",
        json={"sql": sql},
        trust_env=False,
        timeout=2 * ANSWER_S,
        verify=WITHOUT_TLS,
    )


def _get(url: str, path: str) -> dict[str, Any]:
    answer = httpx.get(f"{url}{path}", trust_env=False, timeout=ANSWER_S, verify=WITHOUT_TLS)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def _run(url: str, sql: str) -> None:
    answer = _post(url, sql)
    assert answer.status_code == 200, answer.text


def _placed(url: str, zone: str) -> set[int]:
    """How many peers are stable, over partitions that do not move."""
    found = _get(url, f"/api/v1/zones/{zone}/partitions")["partitions"]
    return {len(each["stable"]["peers"]) if each["stable"] and not each["pending"] else -1 for each in found}
