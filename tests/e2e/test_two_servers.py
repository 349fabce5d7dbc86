"""Two servers, each with a controller, over one PostgreSQL and one etcd, while both are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.installation import ANSWER_S, Installation, wait_for, without_spark, writing
from tests.fixtures.local_access import LocalAccess
from tests.fixtures.second_server import SecondServer

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("two servers are started and killed in turns"),
    pytest.mark.thorough("contract/test_controllers goes on with what another one began"),
]
ZONES = 4


@pytest.fixture
def whole(tmp_path: Path, empty_postgres: str) -> Iterator[Installation]:
    environment = {"ZONEKEEPER_CATALOG_URL": empty_postgres, **without_spark(tmp_path)}
    installation = Installation(tmp_path / "data", environment=environment)
    installation.start()
    yield installation
    installation.stop()


@pytest.mark.row("I3-002", "I3-004")
def test_two_servers_and_two_controllers(whole: Installation, tmp_path: Path) -> None:
    """I3-002, I3-004: every statement has one effect or a coded refusal; both die, and everything converges."""
    second = SecondServer(whole, tmp_path, controllers=True)
    try:
        second.start()
        before = _get(whole.access, "/api/v1/zones")["catalog_version"]
        servers = (whole.access, second.access)
        answers = _everywhere(servers, [f"CREATE ZONE z{n} (PARTITIONS 2, REPLICAS 1)" for n in range(ZONES)])
        for pair in answers:
            assert sorted(answer.status_code for answer in pair) == [200, 409]
            (refused,) = [answer.json() for answer in pair if answer.status_code == 409]
            assert refused["name"] == "ZONE_ALREADY_EXISTS"
        versions = [answer.json()["results"][0]["catalog_version"] for pair in answers for answer in pair
                    if answer.status_code == 200]  # fmt: skip
        assert sorted(versions) == list(range(before + 1, before + ZONES + 1))
        with writing(whole, "Z0") as writer:
            wait_for("writes", lambda: len(writer.acknowledged) > 20)
            for zone, server in enumerate(servers):
                _run(server, f"ALTER ZONE z{zone} SET (REPLICAS 3)")
            second.kill()
            second.start()
            _run(second.access, "ALTER ZONE z2 SET (REPLICAS 3)")
            (first,) = whole.processes("app.cli", " serve ", "--migrate")
            first.kill()
            _run(second.access, "ALTER ZONE z3 SET (REPLICAS 2)")
            for zone, peers in ((0, 3), (1, 3), (2, 3), (3, 2)):
                wait_for(
                    f"convergence of z{zone}",
                    lambda zone=zone, peers=peers: _placed(second.access, f"Z{zone}") == {peers},
                    120,
                )
        wait_for("the first server", whole.is_whole)
        writer.read_back()
        # Both know the same catalog, and go on.
        versions = [_get(server, "/api/v1/zones")["catalog_version"] for server in servers]
        assert versions == [before + ZONES + 4] * 2
    finally:
        second.stop()


def _everywhere(servers: Sequence[LocalAccess], statements: list[str]) -> list[list[httpx.Response]]:
    with ThreadPoolExecutor(len(servers)) as threads:
        return [list(threads.map(lambda server, sql=sql: _post(server, sql), servers)) for sql in statements]


def _post(server: LocalAccess, sql: str) -> httpx.Response:
    with server.client(2 * ANSWER_S) as client:
        return client.post("/api/v1/statements", json={"sql": sql})


def _get(server: LocalAccess, path: str) -> dict[str, Any]:
    with server.client(ANSWER_S) as client:
        body: dict[str, Any] = client.get(path).raise_for_status().json()
        return body


def _run(server: LocalAccess, sql: str) -> None:
    answer = _post(server, sql)
    assert answer.status_code == 200, answer.text


def _placed(server: LocalAccess, zone: str) -> set[int]:
    """Numbers of stable peers, over partitions that do not move; -1: one moves."""
    partitions = _get(server, f"/api/v1/zones/{zone}/partitions")["partitions"]
    return {
        len(each["stable"]["peers"]) if each["stable"] and not each["pending"] else -1 for each in partitions
    }
