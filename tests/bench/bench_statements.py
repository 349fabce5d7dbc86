"""Statements: parsed, committed on SQLite and PostgreSQL, over HTTP, and with many zones.

The baseline of each is the raw commit rate of the same database in the same run: one row inserted and committed
by the bare driver, with the same durability.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from catalog.core.snapshot import CatalogSnapshot, EntryKind, ZoneEntry
from catalog.core.zone import Node, Zone, ZoneId
from catalog.service import CatalogService
from catalog.store.catalog_store import CatalogStore
from catalog.store.migrate import migrate
from parser.to_command import parse_ddl
from rebalance.core.keyspace.keys import Keyspace
from tests.bench.figures import ratio, report, timed
from tests.fixtures.api_server import serving
from tests.fixtures.databases import new_database
from tests.fixtures.etcd_server import Etcd, EtcdServer
from tests.fixtures.script_runner import ScriptRunner, new_version

TEXT = "CREATE ZONE {name} (PARTITIONS 64, REPLICAS 3, QUORUM SIZE 2) STORAGE PROFILES ['default']"
TOPOLOGY = tuple(Node(f"n{number}") for number in range(5))
REPEATS = 300
CLIENTS = 16
ROUNDS = 5
MEMBERS = 10_000_000
PUBLISHED_S = 10.0

_numbers = itertools.count(1)


def create() -> str:
    return TEXT.format(name=f"bench_{next(_numbers)}")


def test_parse() -> None:
    median = report("parse one CREATE ZONE", timed(lambda: parse_ddl(create()), 2_000))
    print(f"{'... of the 0.5 ms that are allowed':<62} {median * 1e3 / 0.5:.2f}")


def test_parse_validate_commit(catalog_url: str, tmp_path: Path) -> None:
    product = catalog_url.partition(":")[0].partition("+")[0]
    raw = report(f"raw commit, {product}", raw_commits(catalog_url, tmp_path))
    store = CatalogStore.open(catalog_url)
    try:
        runner = ScriptRunner(CatalogService(store.unit_of_work))
        done = timed(lambda: runner.run(create(), TOPOLOGY), REPEATS)
        ours = report(f"parse, validate, commit, {product}", done)
        ratio(f"parse, validate, commit, {product}", ours, raw)
    finally:
        store.close()


def test_over_http(request: pytest.FixtureRequest, catalog_url: str, etcd_server: Etcd, tmp_path: Path) -> None:
    """Medians of five rounds, each with all of it, in one run. The load comes from threads of one Python
    process: its own share is the bare round trip."""
    product = catalog_url.partition(":")[0].partition("+")[0]
    beside = tmp_path / "beside"
    beside.mkdir()
    own_url = new_database(request, product, beside)
    migrate(own_url)
    store = CatalogStore.open(own_url)
    runner = ScriptRunner(CatalogService(store.unit_of_work))
    rounds: dict[str, list[float]] = {}
    with serving(
        tmp_path, etcd_server, Keyspace(f"bench-http-{product}/"), catalog_url, member_limit=MEMBERS
    ) as (server,):

        def post(client: httpx.Client) -> httpx.Response:
            return client.post(f"{server.url}/api/v1/statements", json={"sql": create()})

        for _ in range(ROUNDS):
            alone, _ = over_http(1, lambda client: client.get(f"{server.url}/healthz"))
            one, _ = over_http(1, post)
            many, seconds = over_http(CLIENTS, post)
            for name, figure in (
                ("in process", statistics.median(timed(lambda: runner.run(create(), TOPOLOGY), REPEATS))),
                ("the bare HTTP round trip (/healthz), 1 client", statistics.median(alone)),
                ("over HTTP, 1 client", statistics.median(one)),
                (f"over HTTP, {CLIENTS} clients", statistics.median(many)),
                (f"over HTTP, {CLIENTS} clients, of one each", seconds / len(many)),
            ):
                rounds.setdefault(name, []).append(figure)
    store.close()
    medians = [report(f"{name}, {product}", figures) for name, figures in rounds.items()]
    apart, bare, one_client, _, each = medians
    print(
        f"{f'1 client, {product}, of in process and bare together':<62} {one_client / (apart + bare):.2f} times"
    )
    print(f"{f'statements/s, {product}, {CLIENTS} clients':<62} {1 / each:,.0f}")


@pytest.mark.parametrize("over", ["in process", "over HTTP"])
def test_many_zones(over: str, tmp_path: Path, etcd_server: Etcd) -> None:
    medians: dict[int, dict[str, float]] = {}
    for count in (10, 10_000):
        with filled(tmp_path / str(count), count, over, etcd_server) as run:
            took: dict[str, list[float]] = {"CREATE": [], "ALTER": [], "DROP": []}
            for number in range(REPEATS):
                for verb, text in (
                    ("CREATE", f"CREATE ZONE more_{number} (PARTITIONS 1)"),
                    ("ALTER", f"ALTER ZONE more_{number} SET (REPLICAS 2)"),
                    ("DROP", f"DROP ZONE more_{number}"),
                ):
                    begun = time.perf_counter()
                    run(text)
                    took[verb].append(time.perf_counter() - begun)
            medians[count] = {
                verb: report(f"{verb} ZONE among {count:,} zones, {over}", seconds)
                for verb, seconds in took.items()
            }
    for verb, few in medians[10].items():
        print(f"{f'{verb} among 10,000 zones, {over}':<62} {medians[10_000][verb] / few:.2f} times that of 10")


def raw_commits(url: str, directory: Path) -> list[float]:
    """Seconds of each insert with its commit, by the bare driver."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(directory / "raw.sqlite", isolation_level=None)) as connection:
            for pragma in ("journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("CREATE TABLE raw (id INTEGER PRIMARY KEY, text TEXT)")
            return timed(lambda: connection.execute("INSERT INTO raw (text) VALUES ('a row')"), REPEATS)
    parsed = make_url(url).set(drivername="postgresql")
    with psycopg.connect(parsed.render_as_string(hide_password=False)) as server:
        server.execute("CREATE TABLE raw_rows (id SERIAL PRIMARY KEY, text TEXT)")
        server.commit()

        def insert() -> None:
            server.execute("INSERT INTO raw_rows (text) VALUES ('a row')")
            server.commit()

        return timed(insert, REPEATS)


def over_http(
    clients: int, send: Callable[[httpx.Client], httpx.Response], each: int = REPEATS
) -> tuple[list[float], float]:
    """Seconds of each request, and of the whole run."""
    found: list[float] = []
    each = max(each // clients, 40)

    def work() -> None:
        with httpx.Client(trust_env=False, timeout=30) as client:
            send(client)
            mine = []
            for _ in range(each):
                begun = time.perf_counter()
                answer = send(client)
                mine.append(time.perf_counter() - begun)
                assert answer.status_code == 200, answer.text
            found.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, time.perf_counter() - begun


@contextmanager
def filled(directory: Path, count: int, over: str, etcd: EtcdServer) -> Iterator[Callable[[str], object]]:
    """A way to run statements on a catalog with ``count`` zones."""
    directory.mkdir()
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    migrate(url)
    store = CatalogStore.open(url)
    zones = (Zone(ZoneId(n), f"Z{n}", 1, 1, None, ("default",)) for n in range(1, count + 1))
    entries = tuple(ZoneEntry(EntryKind.WRITTEN, zone) for zone in zones)
    base = CatalogSnapshot()
    store.unit_of_work.commit(base, [new_version(base, entries, "x" * 32, "many")])
    if over == "in process":
        runner = ScriptRunner(CatalogService(store.unit_of_work))
        yield lambda text: runner.run(text, TOPOLOGY)
        store.close()
        return
    store.close()
    with (
        serving(directory, etcd, Keyspace(f"bench-{count}/"), url, member_limit=MEMBERS) as (server,),
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):

        def post(text: str) -> None:
            answer = client.post("/api/v1/statements", json={"sql": text})
            assert answer.status_code == 200, answer.text

        # The relay publishes what is new to it first.
        time.sleep(PUBLISHED_S)
        yield post
