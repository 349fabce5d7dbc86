"""Two real servers over one catalog: what an administrator takes away on one of them ends what runs, waits and
is read on the other. The queries never end by themselves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from catalog.store.connections import parse_url
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.access_world import bearer
from tests.fixtures.api_server import with_data
from tests.fixtures.databases import new_postgres
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import SecureServer, serving_securely
from tests.fixtures.waiting import until

ADMIN = "the-administrator"
ENDLESS = "WITH RECURSIVE t (x) AS (SELECT 1 UNION ALL SELECT (x * 7) % 1000003 FROM t) SELECT count(*) FROM t"
STATEMENTS = "/api/v1/statements"


def in_system(user: str) -> dict[str, str]:
    return {"X-Trino-User": user, "X-Trino-Schema": "system"}


PATIENCE_S = 120.0
SETTINGS = {"ZONEKEEPER_QUERY_TIMEOUT_S": "600", "ZONEKEEPER_CONSOLE": "false"}
PASSWORD = "a password that is long enough"
_numbers = itertools.count(1)

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow("two servers, and a query for each way to end it"),
]


@pytest.fixture(scope="module")
def catalog_url(postgres_server: str) -> str:
    return new_postgres(postgres_server)


@pytest.fixture(scope="module")
def servers(
    etcd_server: Etcd, catalog_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SecureServer, SecureServer]]:
    directory: Path = tmp_path_factory.mktemp("revoked")
    keyspace = Keyspace("test-revoked/")
    with serving_securely(directory, etcd_server, keyspace, catalog_url, SETTINGS) as first:
        second = SecureServer(tmp_path_factory.mktemp("second"), etcd_server, keyspace, catalog_url, SETTINGS)
        try:
            second.start()
            yield first, second
        finally:
            second.stop()


@pytest.fixture
def administrator(servers: tuple[SecureServer, SecureServer]) -> Iterator[httpx.Client]:
    """Administrator's client, on another server than that of all other users."""
    with servers[1].client(ADMIN) as client:
        yield client


def run(client: httpx.Client, sql: str) -> list[dict[str, Any]]:
    answer = client.post(STATEMENTS, json={"sql": sql})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


@pytest.fixture
def user(servers: tuple[SecureServer, SecureServer], administrator: httpx.Client) -> Iterator[str]:
    """User who sees all zones, made on the server where it logs in: the other one knows it up to 2 s later, and
    after five logins with an unknown name further ones are refused for a minute."""
    name = f"user{next(_numbers)}"
    with servers[0].client(ADMIN) as client:
        run(client, f"CREATE USER {name} PASSWORD '{PASSWORD}'; GRANT SEE, ALTER ON ALL ZONES TO {name}")
    yield name
    run(administrator, f"DROP USER IF EXISTS {name}")


def begin(client: httpx.Client, sql: str = ENDLESS) -> str:
    answer = client.post(STATEMENTS, json={"sql": sql, "wait_timeout": 0})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["statement_id"])


def end_of(administrator: httpx.Client, statement_id: str) -> dict[str, Any]:
    """Document of the statement at its end, as an operator of the system reads it."""

    def over() -> dict[str, Any] | None:
        document: dict[str, Any] = administrator.get(f"{STATEMENTS}/{statement_id}").json()
        return document if document["state"] not in ("PENDING", "RUNNING") else None

    document: dict[str, Any] = until(over)
    return document


def runs(administrator: httpx.Client, statement_id: str) -> bool:
    document = administrator.get(f"{STATEMENTS}/{statement_id}").json()
    return bool(document["state"] == "RUNNING")


WAYS = {
    "REVOKE": (
        "REVOKE SEE ON ALL ZONES FROM {0}; REVOKE ALTER ON ALL ZONES FROM {0}",
        "PRIVILEGE_MISSING",
        403,
    ),
    "NOLOGIN": ("ALTER USER {0} NOLOGIN", "UNAUTHENTICATED", 401),
    "DROP USER": ("DROP USER {0}", "UNAUTHENTICATED", 401),
    "another password": ("ALTER USER {0} PASSWORD 'quite another password'", "UNAUTHENTICATED", 401),
}


@contextmanager
def waiting(client: httpx.Client) -> Iterator[Future[httpx.Response]]:
    """The answer of a query that is not logged."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(client.post, STATEMENTS, json={"sql": ENDLESS})


def test_a_revoked_token_ends_what_runs_by_it(
    servers: tuple[SecureServer, SecureServer], administrator: httpx.Client, user: str
) -> None:
    """And nothing of the same user that another login runs."""
    with servers[0].client(user, PASSWORD) as client, servers[0].client() as by_token:
        token = client.post("/api/v1/tokens", json={}).raise_for_status().json()
        by_token.headers.update(bearer(token["secret"]))
        with waiting(by_token) as answer:
            logged, other = begin(by_token), begin(client)
            administrator.delete(f"/api/v1/tokens/{token['token_id']}").raise_for_status()
            ended = answer.result(PATIENCE_S)
            assert (ended.status_code, ended.json()["name"]) == (401, "UNAUTHENTICATED")
            assert end_of(administrator, logged)["error"]["name"] == "UNAUTHENTICATED"
            assert runs(administrator, other)
            client.post(f"{STATEMENTS}/{other}/cancel", json={}).raise_for_status()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_taken_away_ends_running_and_logged_queries(
    servers: tuple[SecureServer, SecureServer], administrator: httpx.Client, user: str, way: str
) -> None:
    sql, name, status = WAYS[way]
    with servers[0].client(user, PASSWORD) as client, waiting(client) as answer:
        logged = begin(client)
        until(lambda: runs(administrator, logged))
        assert not answer.done()
        run(administrator, sql.format(user))
        begun = time.monotonic()
        ended = answer.result(PATIENCE_S)
        print(f"\n{way}: ended after {time.monotonic() - begun:.2f} s")
        assert (ended.status_code, ended.json()["name"]) == (status, name)
        over = end_of(administrator, logged)
        assert (over["state"], over["error"]["name"]) == ("FAILED", name)
        if way == "REVOKE":
            assert over["error"]["detail"] == f"ALTER ON ALL ZONES was revoked from local:{user} meanwhile"
            assert client.get(f"{STATEMENTS}/{logged}").json()["error"]["name"] == name
        else:
            assert client.get(f"{STATEMENTS}/{logged}").status_code == 401


def test_whoever_waits_for_data_waits_no_longer(
    servers: tuple[SecureServer, SecureServer], administrator: httpx.Client, user: str
) -> None:
    """The change stays, and the error says so."""
    zone = f"waits{next(_numbers)}"
    run(administrator, f"CREATE ZONE {zone} (PARTITIONS 1, REPLICAS 1)")
    headers = {"X-Trino-User": user, "X-Trino-Session": "wait=true"}
    with servers[0].client(user, PASSWORD) as client:
        # No controller runs: the data arrives nowhere.
        sql = f"ALTER ZONE {zone} SET (REPLICAS 2)"
        page = client.post("/v1/statement", content=sql, headers=headers).raise_for_status().json()
        while "updateType" not in page:  # not made yet
            page = client.get(page["nextUri"]).raise_for_status().json()
        run(administrator, f"REVOKE ALTER ON ALL ZONES FROM {user}")
        while "nextUri" in page:
            page = client.get(page["nextUri"]).raise_for_status().json()
        assert page["error"]["errorName"] == "PRIVILEGE_MISSING"
        assert "stays, and its data keeps moving" in page["error"]["message"]
    (shown,) = run(administrator, f"SELECT zone_replicas FROM zones WHERE zone_name = '{zone.upper()}'")
    assert shown["data"] == [[2]]


@pytest.mark.parametrize("protocol", ["of drivers", "of REST"])
def test_each_page_needs_what_its_rows_were_read_with(
    servers: tuple[SecureServer, SecureServer], administrator: httpx.Client, user: str, protocol: str
) -> None:
    zone = f"paged{next(_numbers)}"
    run(administrator, f"CREATE ZONE {zone} (PARTITIONS 1)")
    sql = f"SELECT zone_name FROM zones WHERE zone_name = '{zone.upper()}'"
    with servers[0].client(user, PASSWORD) as client:
        if protocol == "of drivers":
            first = client.post("/v1/statement", content=sql, headers=in_system(user)).json()
            address, page = with_data(client, first["nextUri"])
            assert page["data"] == [[zone.upper()]]
        else:
            done = client.post(STATEMENTS, json={"sql": sql, "wait_timeout": 30}).raise_for_status()
            assert done.json()["results"][0]["data"] == [[zone.upper()]]
            assert "held" not in done.json()["results"][0]
            address = done.headers["Location"]
        # What is added takes nothing away.
        run(administrator, f"GRANT READ ON ALL ZONES TO {user}")
        assert zone.upper() in client.get(address).raise_for_status().text
        run(administrator, f"REVOKE SEE, ALTER, READ ON ALL ZONES FROM {user}")

        def refused() -> bool:
            text = client.get(address).text
            return zone.upper() not in text and "PRIVILEGE_MISSING" in text

        until(refused)
        if protocol == "of REST":
            rows = client.get(f"{address}/results/1/rows")
            assert (rows.status_code, rows.json()["name"]) == (403, "PRIVILEGE_MISSING")


def test_a_later_user_of_the_same_name_is_another_one(
    servers: tuple[SecureServer, SecureServer], administrator: httpx.Client, user: str
) -> None:
    """Accept no proof of an earlier user for a later one of the same name: at no moment, on no server."""
    with servers[0].client(user, PASSWORD) as client:
        token = client.post("/api/v1/tokens", json={}).raise_for_status().json()["secret"]
    with servers[0].client() as elsewhere, servers[1].client() as here:
        for old in (elsewhere, here):
            old.headers.update(bearer(token))
            old.get("/api/v1/whoami").raise_for_status()
        run(administrator, f"DROP USER {user}; CREATE USER {user}; GRANT administrator TO {user}")
        begun = time.monotonic()
        assert here.get("/api/v1/whoami").status_code == 401
        number, known = 0, False
        # The other one knows of it two seconds later at most; logins that fail are limited soon.
        while not known:
            number += 1
            made = elsewhere.post(STATEMENTS, json={"sql": f"CREATE USER {user}x{number}"})
            assert made.status_code in (401, 403), made.text
            assert here.get("/api/v1/tokens").status_code in (401, 429)
            known = made.status_code == 401
        assert time.monotonic() - begun < PATIENCE_S
        (made_users,) = run(administrator, f"SELECT count(*) FROM users WHERE user_name LIKE '{user}x%'")
        assert made_users["data"] == [[0]]


def has_begun(operator: httpx.Client, user: str) -> bool:
    """True once the user's query runs on the operator's server, which has read all that it needs of the
    catalog."""
    (queries,) = run(operator, f"SELECT state FROM system.sql_queries WHERE user_name = '{user}'")
    return bool(queries["data"] == [["RUNNING"]])


@contextmanager
def away(postgres_server: str, catalog_url: str) -> Iterator[None]:
    """The catalog's database takes no connections, and has ended those that there were."""
    database = parse_url(catalog_url).database
    engine = create_engine(parse_url(postgres_server), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {database} WITH ALLOW_CONNECTIONS false"))
        ends = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :database")
        try:
            connection.execute(ends, {"database": database})
            yield
        finally:
            connection.execute(text(f"ALTER DATABASE {database} WITH ALLOW_CONNECTIONS true"))


def test_a_server_whose_catalog_stays_away_refuses_everything_but_health(
    servers: tuple[SecureServer, SecureServer], user: str, postgres_server: str, catalog_url: str
) -> None:
    """Refuse everything but health while the catalog is away, and end what runs; with the catalog the user is
    served again."""
    path = "/api/v1/whoami"
    with (
        servers[0].client(user, PASSWORD) as client,
        servers[0].client() as nobody,
        servers[0].client(ADMIN) as operator,
        waiting(client) as running,
    ):
        assert client.get(path).status_code == 200
        until(lambda: has_begun(operator, user))
        with away(postgres_server, catalog_url):
            begun = time.monotonic()
            until(lambda: client.get(path).status_code == 503)
            print(f"\nrefused {time.monotonic() - begun:.1f} s after the catalog went away")
            for method, refused in (("GET", path), ("GET", "/api/v1/zones"), ("POST", STATEMENTS)):
                answer = client.request(method, refused, json={"sql": "SELECT 1"})
                assert (answer.status_code, answer.json()["name"]) == (503, "GRANTS_UNAVAILABLE")
            ended = running.result(PATIENCE_S)
            assert (ended.status_code, ended.json()["name"]) == (503, "GRANTS_UNAVAILABLE")
            assert nobody.get("/livez").status_code == 200
            assert nobody.get("/readyz").json()["ready"] is False
        until(lambda: client.get(path).status_code == 200)
