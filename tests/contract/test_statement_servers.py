"""Two servers over one PostgreSQL: they answer for each other, and a statement sent to both runs once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from catalog.store.migrate import migrate
from rebalance.core.keyspace.keys import Keyspace
from tests.e2e.installation import wait_for
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import SecureServer, serving_securely

USER = {"X-Trino-User": "tester"}


@pytest.fixture
def servers(
    etcd_server: Etcd, keyspace: Keyspace, empty_postgres: str, tmp_path: Path
) -> Iterator[list[ApiServer]]:
    migrate(empty_postgres)
    with serving(tmp_path, etcd_server, keyspace, empty_postgres, 2) as started:
        yield started


def post(server: ApiServer, path: str, key: str, **body: object) -> httpx.Response:
    headers = {"Idempotency-Key": key, **USER}
    return httpx.post(f"{server.url}{path}", headers=headers, trust_env=False, timeout=60, **body)


def followed(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The last page."""
    while "nextUri" in body:
        body = client.get(body["nextUri"]).json()
    return body


def zone_names(client: httpx.Client, server: ApiServer) -> set[str]:
    return {each["name"] for each in client.get(f"{server.url}/api/v1/zones").json()["zones"]}


@pytest.mark.timeout(600)
def test_two_servers(servers: list[ApiServer]) -> None:
    """One test, because starting two servers is what takes time."""
    one, two = servers
    with httpx.Client(trust_env=False, timeout=60) as client:
        first = client.post(f"{one.url}/v1/statement", content="SELECT 1", headers=USER).json()
        elsewhere = first["nextUri"].replace(one.url, two.url)
        page = client.get(elsewhere).json()
        while "data" not in page:
            elsewhere = page["nextUri"]
            page = client.get(elsewhere).json()
        assert page["data"] == [[1]]
        # The same page from the first server; only the addresses are its own.
        assert client.get(elsewhere.replace(two.url, one.url)).json()["data"] == [[1]]

        for n in range(5):
            sql = f"CREATE ZONE z{n} (PARTITIONS 1)"
            with ThreadPoolExecutor(4) as threads:
                rest = list(
                    threads.map(
                        lambda s, sql=sql, n=n: post(s, "/api/v1/statements", f"k{n}", json={"sql": sql}),
                        servers * 2,
                    )
                )
            assert {answer.status_code for answer in rest} == {200}
            assert len({answer.content for answer in rest}) == 1
        for n in range(5):
            sql = f"CREATE ZONE t{n} (PARTITIONS 1)"
            with ThreadPoolExecutor(4) as threads:
                pages = list(
                    threads.map(
                        lambda s, sql=sql, n=n: post(s, "/v1/statement", f"k{n}", content=sql), servers * 2
                    )
                )
            assert not [answer.text for answer in pages if "error" in answer.json()]
            assert len({answer.json()["id"] for answer in pages}) == 1
            assert "error" not in followed(client, pages[0].json())
        zones = client.get(f"{two.url}/api/v1/zones").json()
        assert zones["catalog_version"] == 10

        headers = {**USER, "X-Trino-Session": "wait=true"}
        waiting = client.post(
            f"{one.url}/v1/statement", content="CREATE ZONE w (PARTITIONS 1)", headers=headers
        ).json()
        deleted = client.delete(waiting["nextUri"].replace(one.url, two.url))
        assert deleted.status_code == 204
        error = None
        while error is None:
            waiting = client.get(waiting["nextUri"]).json()
            error = waiting.get("error")
        assert error["errorName"] == "STATEMENT_CANCELED"

        # The other server says how a statement ended whose server was killed.
        lost = client.post(
            f"{one.url}/v1/statement", content="CREATE ZONE v (PARTITIONS 1)", headers=headers
        ).json()
        wait_for("the zone", lambda: "V" in zone_names(client, two), 60)
        one.kill()
        body = followed(client, {"nextUri": lost["nextUri"].replace(one.url, two.url)})
        assert "error" not in body
        assert [each["warningCode"]["name"] for each in body["warnings"]] == ["WAIT_INTERRUPTED"]


ADMIN, VIEWER = "the-administrator", "the-viewer"


@pytest.fixture
def secure_servers(
    etcd_server: Etcd, keyspace: Keyspace, empty_postgres: str, tmp_path: Path
) -> Iterator[list[SecureServer]]:
    with serving_securely(tmp_path, etcd_server, keyspace, empty_postgres) as one:
        beside = tmp_path / "beside"
        beside.mkdir()
        two = SecureServer(beside, etcd_server, keyspace, empty_postgres, {})
        try:
            two.start()
            yield [one, two]
        finally:
            two.stop()


@pytest.mark.thorough("test_two_servers, and contract/test_statement_log for its users")
@pytest.mark.timeout(600)
def test_a_statement_whose_server_died_stays_its_users(secure_servers: list[SecureServer]) -> None:
    """The other server writes its end for nobody but its user, and runs nothing of it."""
    one, two = secure_servers
    waits = {"X-Trino-User": ADMIN, "X-Trino-Session": "wait=true"}
    sql = "CREATE ZONE v (PARTITIONS 1)"
    with one.client(ADMIN) as first, two.client(ADMIN) as client, two.client(VIEWER) as other:
        lost = first.post("/v1/statement", content=sql, headers=waits).raise_for_status().json()
        wait_for("the zone", lambda: client.get("/api/v1/zones/V").status_code == 200)
        path = urlsplit(lost["nextUri"]).path
        one.kill()
        for method in ("GET", "DELETE"):
            assert other.request(method, path, headers={"X-Trino-User": VIEWER}).status_code == 404
        body: dict[str, Any] = {"nextUri": path}
        while "nextUri" in body:
            body = client.get(urlsplit(body["nextUri"]).path).raise_for_status().json()
        assert [warning["warningCode"]["name"] for warning in body["warnings"]] == ["WAIT_INTERRUPTED"]
        assert other.get(path, headers={"X-Trino-User": VIEWER}).status_code == 404
        events = client.get("/api/v1/audit", params={"subject": "V"}).json()["records"]
        assert [(event["action"], event["by"]) for event in events] == [("CREATE ZONE", ADMIN)]


CLIENTS = 16
EACH = 6


@pytest.mark.timeout(600)
def test_a_server_that_is_killed_under_load(servers: list[ApiServer]) -> None:
    """Sixteen clients at two servers, each statement under a key of its own. Whoever gets no answer sends it to
    the other server: what is answered with success is in the history once, and what is not is not."""
    one, two = servers
    answers: dict[str, tuple[int, str]] = {}
    halfway = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        for turn in range(EACH):
            if turn == EACH // 2:
                halfway.wait(300)
            text = f"CREATE ZONE z_{number}_{turn} (PARTITIONS 1)"
            answer = sent((one, two)[number % 2], two, text)
            answers[text] = answer.status_code, answer.text

    def sent(server: ApiServer, other: ApiServer, text: str) -> httpx.Response:
        try:
            return post(server, "/api/v1/statements", text, json={"sql": text})
        except httpx.TransportError:
            pass
        # The other server knows the outcome when the lease of the one that was killed is over.
        return post(other, "/api/v1/statements", text, json={"sql": text})

    with ThreadPoolExecutor(CLIENTS) as threads:
        ended = [threads.submit(client, number) for number in range(CLIENTS)]
        halfway.wait(300)
        one.kill()
        for future in ended:
            future.result()
    assert len(answers) == CLIENTS * EACH
    with httpx.Client(trust_env=False, timeout=60) as http:
        body = {"sql": "SELECT catalog_version, statement FROM events ORDER BY 1"}
        events = http.post(f"{two.url}/api/v1/statements", json=body).json()["results"][0]["data"]
    assert [version for version, _ in events] == list(range(1, len(events) + 1))
    made = [statement for _, statement in events]
    assert len(set(made)) == len(made)
    for text, (status, said) in answers.items():
        assert status == (200 if text in made else 504), said
    assert sum(status == 200 for status, _ in answers.values()) >= CLIENTS * EACH // 2
