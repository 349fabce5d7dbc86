"""``/api/v1/statements`` with its log: waiting, idempotency, cancel, paging, restarts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving, with_data
from tests.fixtures.databases import PRODUCTS, new_database
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.slices import in_every_run

_names = (f"L{number}" for number in itertools.count(1))
STATEMENTS = "/api/v1/statements"


# The log's own tests are of both products in every run.
@pytest.fixture(scope="module", params=in_every_run(PRODUCTS, ["postgresql"]))
def server(
    request: pytest.FixtureRequest, etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    directory: Path = tmp_path_factory.mktemp("logged")
    url = new_database(request, request.param, directory)
    keyspace, settings = Keyspace(f"test-logged-{request.param}/"), {"ZONEKEEPER_CONSOLE": "false"}
    with serving(directory, etcd_server, keyspace, url, environment=settings) as servers:
        yield servers[0]


@pytest.fixture
def client(server: ApiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as opened:
        yield opened


@pytest.fixture
def zone() -> str:
    return next(_names)


def over(client: httpx.Client, location: str) -> dict[str, Any]:
    """The document of a statement once it is over."""
    deadline = time.monotonic() + 90
    while True:
        found: dict[str, Any] = client.get(location).raise_for_status().json()
        if found["state"] not in ("PENDING", "RUNNING"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_the_default_is_synchronous_and_unlogged(client: httpx.Client, zone: str) -> None:
    answer = client.post(STATEMENTS, json={"sql": f"CREATE ZONE {zone}"})
    assert answer.status_code == 200
    assert set(answer.json()) == {"results"}


def test_without_waiting(client: httpx.Client, zone: str) -> None:
    """202 with a place to look again, unless it was over already when asked."""
    answer = client.post(STATEMENTS, json={"sql": f"CREATE ZONE {zone}", "wait_timeout": 0})
    assert answer.status_code in (200, 202)
    if answer.status_code == 202:
        assert answer.headers["Retry-After"] == "1"
        assert answer.json()["state"] == "RUNNING"
    found = over(client, answer.headers["Location"])
    assert found["state"] == "SUCCEEDED"
    assert found["results"][0]["effect"]["zone"] == zone


def test_the_same_key_has_one_effect_and_one_answer(client: httpx.Client, zone: str) -> None:
    headers = {"Idempotency-Key": f"key-{zone}"}
    sql = f"CREATE ZONE {zone}; ALTER ZONE {zone} SET (REPLICAS 2)"
    first, again = (client.post(STATEMENTS, json={"sql": sql}, headers=headers) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    other = client.post(STATEMENTS, json={"sql": f"DROP ZONE {zone}"}, headers=headers)
    assert other.status_code == 422
    assert other.json()["name"] == "IDEMPOTENCY_KEY_REUSED"


def test_a_refused_script_is_refused_again_without_running(client: httpx.Client, zone: str) -> None:
    headers = {"Idempotency-Key": f"key-{zone}"}
    sql = f"CREATE ZONE {zone}; CREATE ZONE {zone}"
    first, again = (client.post(STATEMENTS, json={"sql": sql}, headers=headers) for _ in range(2))
    assert first.status_code == again.status_code == 409
    assert first.headers["content-type"] == "application/problem+json"
    assert (first.json()["name"], first.json()["statement"]) == ("ZONE_ALREADY_EXISTS", 2)
    assert len(first.json()["results"]) == 1
    assert first.content == again.content


def test_results_come_in_pages(client: httpx.Client, zone: str) -> None:
    script = ";".join([f"CREATE ZONE IF NOT EXISTS {zone}"] * 5)
    answer = client.post(STATEMENTS, json={"sql": script, "wait_timeout": 30})
    location = answer.headers["Location"]
    over(client, location)
    numbers, token = [], None
    for _ in range(3):
        page = client.get(location, params={"page_size": 2, **({"page_token": token} if token else {})}).json()
        numbers.append([each["n"] for each in page["results"]])
        token = page["next_page_token"]
    assert numbers == [[1, 2], [3, 4], [5]]
    assert token is None
    refused = client.get(location, params={"page_token": "bm9uc2Vuc2U"})
    assert (refused.status_code, refused.json()["name"]) == (400, "INVALID_REQUEST")
    assert client.get(f"{location}/results/1/rows").status_code == 404


def test_cancel_and_close_undo_nothing(client: httpx.Client, zone: str) -> None:
    headers = {"Idempotency-Key": f"key-{zone}"}
    body = {"sql": f"CREATE ZONE {zone}", "wait_timeout": 30}
    location = client.post(STATEMENTS, json=body, headers=headers).headers["Location"]
    over(client, location)
    assert client.post(f"{location}/cancel", json={}).json()["state"] == "SUCCEEDED"
    assert client.delete(location).status_code == client.delete(location).status_code == 204
    assert client.get(location).json()["state"] == "CLOSED"
    assert client.get(location).json()["results"] == []
    again = client.post(STATEMENTS, json=body, headers=headers)
    assert (again.status_code, again.json()["name"]) == (410, "STATEMENT_RESULT_GONE")
    assert client.get(f"/api/v1/zones/{zone}").status_code == 200
    for path in (f"{STATEMENTS}/none", f"{STATEMENTS}/{'0' * 32}"):
        assert client.get(path).json()["name"] == "STATEMENT_NOT_FOUND"


def test_what_a_path_allows(client: httpx.Client) -> None:
    refused = client.put(f"{STATEMENTS}/{'0' * 32}")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "DELETE, GET")


def test_results_survive_a_restart(server: ApiServer, client: httpx.Client, zone: str) -> None:
    """Keep the results of both protocols over a restart, and the answer that an idempotency key stands for."""
    headers = {"Idempotency-Key": f"key-{zone}"}
    body = {"sql": f"CREATE ZONE {zone}"}
    before = client.post(STATEMENTS, json=body, headers=headers)
    first = client.post("/v1/statement", content="SELECT 42", headers={"X-Trino-User": "tester"}).json()
    address, page = with_data(client, first["nextUri"])
    server.kill()
    server.start()
    assert client.post(STATEMENTS, json=body, headers=headers).content == before.content
    assert client.get(address).json()["data"] == page["data"] == [[42]]


@pytest.mark.parametrize("text", ["\x00", "SHOW ZONES -- \x00", "SELECT '\x00'"])
def test_a_text_that_no_database_takes_is_refused(client: httpx.Client, text: str) -> None:
    """PostgreSQL stores no NUL; the refusal says where it is, whichever way the statement came."""
    for body in ({"sql": text}, {"sql": text, "wait_timeout": 30}):
        refused = client.post(STATEMENTS, json=body)
        assert (refused.status_code, refused.json()["name"]) == (400, "SYNTAX_ERROR"), refused.text
        assert "U+0000" in refused.json()["detail"]
    posted = client.post("/v1/statement", content=text, headers={"X-Trino-User": "a"})
    assert posted.status_code == 200
    page = posted.json()
    while "error" not in page:
        page = client.get(urlsplit(page["nextUri"]).path).json()
    assert page["error"]["errorName"] == "SYNTAX_ERROR"
    assert client.get("/api/v1/audit", params={"subject": "\x00", "by": "a\x00"}).json()["records"] == []


def test_what_headers_of_the_protocol_hold_is_text(client: httpx.Client) -> None:
    headers = {"X-Trino-User": "a", "X-Trino-Prepared-Statement": "p=SELECT+%ff"}
    refused = client.post("/v1/statement", content="EXECUTE p", headers=headers)
    assert (refused.status_code, refused.json()["name"]) == (400, "TEXT_NOT_UTF8")
