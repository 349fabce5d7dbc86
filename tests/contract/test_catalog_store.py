"""Promises of a catalog, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Row, create_engine, event, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app.sql.statements.results import ScriptError
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.snapshot import CatalogSnapshot, EntryKind, ZoneEntry
from catalog.core.table import Column, Table, TableId
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.ports import CommitOutcome
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.connections import open_engine, parse_url
from catalog.store.migrate import migrate
from catalog.store.repository import SqlUnitOfWork
from catalog.store.tables import METADATA
from parser.to_command import parse_ddl
from tests.fixtures.script_runner import ScriptRunner, new_version

NODES = tuple(Node(f"n{n}", profiles=("default", "rocks")) for n in (1, 2, 3))


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


@pytest.fixture
def runner(store: CatalogStore) -> ScriptRunner:
    return ScriptRunner(CatalogService(store.unit_of_work))


def dump(url: str) -> dict[str, list[Row[Any]]]:
    """Every row of every table."""
    engine = create_engine(parse_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        return {
            table.name: sorted(connection.execute(select(table)).all(), key=repr)
            for table in METADATA.sorted_tables
        }


def test_an_empty_catalog_is_version_0(store: CatalogStore) -> None:
    assert store.unit_of_work.snapshot() == store.unit_of_work.snapshot(0) == CatalogSnapshot()
    assert store.history() == ()
    assert store.outbox.unsent() == ()


@pytest.mark.row("IEP-013", "IEP-015", "IEP-030", "IEP-031")
def test_every_version_can_be_read_for_ever(runner: ScriptRunner, store: CatalogStore) -> None:
    """IEP-013, IEP-015, IEP-030, IEP-031: what was said is stored, at each version."""
    script = """CREATE ZONE a (PARTITIONS 4, REPLICAS 3, QUORUM SIZE 2);
        CREATE ZONE "Ünï 'x' \\" (REPLICAS ALL) STORAGE PROFILES ['rocks', 'default'];
        ALTER ZONE a SET (REPLICAS 2); DROP ZONE a; CREATE ZONE a"""
    results = runner.run(script, NODES)
    assert [result.catalog_version for result in results] == [1, 2, 3, 4, 5]
    assert [result.zone_id for result in results] == [1, 2, 1, 1, 3]
    first = Zone(ZoneId(1), "A", 4, 3, 2, ("default",))
    second = Zone(ZoneId(2), "Ünï 'x' \\", 25, 2_147_483_647, None, ("rocks", "default"))
    versions = [store.unit_of_work.snapshot(version) for version in range(6)]
    assert versions[1].zones == (first,)
    assert versions[2].zones == (first, second)
    assert [zone.replicas for zone in versions[3].zones] == [2, 2_147_483_647]
    lives = [[zone.life for zone in version.zones] for version in versions]
    assert all(all(each) for each in lives)
    assert (lives[3], lives[4]) == (lives[2], lives[2][1:])
    assert len(set(lives[5])) == 2
    assert versions[4].zones == (second,)
    assert versions[5] == store.unit_of_work.snapshot()
    assert versions[5].next_zone_id == 4
    with pytest.raises(StoreError) as error:
        store.unit_of_work.snapshot(6)
    assert error.value.kind is ErrorKind.INVALID_REQUEST


def test_tables_and_the_default_zone_are_versions_like_zones(
    runner: ScriptRunner, store: CatalogStore, catalog_url: str
) -> None:
    """The first table without a ZONE brings the default zone along, in one version."""
    script = """CREATE TABLE t ("x'y" INT, v VARCHAR(3) NOT NULL DEFAULT 'é', PRIMARY KEY ("x'y"));
        ALTER TABLE t ADD COLUMN w DECIMAL(3, 1); CREATE ZONE a STORAGE PROFILES ['rocks', 'default'];
        CREATE TABLE u (a INT, b INT, PRIMARY KEY (a, b)) COLOCATE BY (b) ZONE a STORAGE PROFILE 'default';
        ALTER ZONE a SET DEFAULT; ALTER ZONE a RENAME TO b; DROP TABLE t; DROP ZONE "Default" """
    results = runner.run(script, NODES)
    assert [result.catalog_version for result in results] == list(range(1, 9))
    assert [result.zone_id for result in results] == [1, None, 2, None, None, 2, None, 1]
    versions = [store.unit_of_work.snapshot(version) for version in range(9)]
    assert [version.default_zone_id for version in versions] == [None, 1, 1, 1, 1, 2, 2, 2, 2]
    key = Column("x'y", "INTEGER", nullable=False)
    value = Column("V", "VARCHAR(3)", nullable=False, default="'é'")
    first = Table(TableId(1), "T", ZoneId(1), "default", (key, value), ("x'y",), ("x'y",))
    assert versions[1].tables == (first,)
    assert versions[2].tables == (replace(first, columns=(key, value, Column("W", "DECIMAL(3, 1)"))),)
    second = versions[4].tables[1]
    assert (second.zone_id, second.storage_profile, second.colocation) == (2, "default", ("B",))
    assert [zone.name for zone in versions[6].zones] == ["Default", "B"]
    assert versions[7].tables == (second,)
    assert (versions[8].next_zone_id, versions[8].next_table_id) == (3, 3)
    assert versions[8] == store.unit_of_work.snapshot()
    published = [(row.version, row.zone_id) for row in store.outbox.unsent()]
    assert published == [(1, 1), (3, 2), (6, 2), (8, 1)]
    before = dump(catalog_url)
    for sql in ("DROP ZONE b", "ALTER TABLE u DROP COLUMN a", "CREATE TABLE u (id INT PRIMARY KEY)"):
        with pytest.raises(ScriptError):
            runner.run(sql, NODES)
        assert dump(catalog_url) == before


def test_history_keeps_the_statements(catalog_url: str) -> None:
    store = CatalogStore.open(catalog_url, now_us=lambda: 1_700_000_000_000_001)
    ScriptRunner(CatalogService(store.unit_of_work)).run("CREATE ZONE a -- why\n; DROP ZONE a;", NODES)
    records = store.history()
    assert [(record.version, record.statement) for record in records] == [
        (1, "CREATE ZONE a"),
        (2, "DROP ZONE a"),
    ]
    assert records[0].committed_at_us == 1_700_000_000_000_001
    assert store.history(after=1, limit=5) == records[1:]
    assert store.unit_of_work.version_of(records[1].statement_id) == 2
    assert store.unit_of_work.version_of("never") is None
    store.close()
    store.close()


BAD_STATEMENTS = [
    "",
    "CREATE ZONE b (REPLICAS)",
    "CREATE ZONE b; CREATE ZONE c (REPLICAS",
    "SELECT 1",
    "CREATE ZONE a",
    "CREATE ZONE b (REPLICAS 3, QUORUM SIZE 1)",
    "CREATE ZONE b (REPLICAS 9, QUORUM SIZE 5)",
    "CREATE ZONE b (REPLICAS 5, QUORUM SIZE 4)",
    "CREATE ZONE b WITH REPLICAS='3'",
    "CREATE ZONE b (PARTITIONS 0)",
    "CREATE ZONE b STORAGE PROFILES ['none']",
    "CREATE ZONE b (AUTO SCALE UP soon)",
    "CREATE ZONE b (NODES FILTER '$.region')",
    "CREATE ZONE b (CONSISTENCY MODE 'high_availability')",
    "CREATE ZONE b; COMMIT",
    "CREATE TABLE t (id INT PRIMARY KEY) ZONE b",
    "CREATE TABLE t (id INT)",
    "DROP TABLE t",
    "ALTER ZONE a SET (PARTITIONS 9)",
    "ALTER ZONE a SET (REPLICAS 1)",
    "ALTER ZONE a SET (QUORUM SIZE 3)",
    "ALTER ZONE ghost SET (REPLICAS 3)",
    "DROP ZONE ghost",
    "ALTER ZONE a RENAME TO a",
    "ALTER ZONE b RENAME TO c",
    "ALTER ZONE b SET DEFAULT",
    f"CREATE ZONE {'b' * 129}",
    'CREATE ZONE " "',
]


@pytest.mark.row("I3-003", "IEP-022", "IEP-023", "IEP-024", "IEP-025", "IEP-032")
def test_a_bad_statement_leaves_the_catalog_as_it_was(runner: ScriptRunner, catalog_url: str) -> None:
    """IEP-022, IEP-023, IEP-024, IEP-025, IEP-032, I3-003: byte for byte, in every table."""
    runner.run("CREATE ZONE a (REPLICAS 3, QUORUM SIZE 2)", NODES)
    before = dump(catalog_url)
    # With its audit, and with the schema's own row; the ready roles are there from the beginning.
    written = {name: rows for name, rows in before.items() if name not in ("roles", "grants")}
    assert sorted(len(rows) for rows in written.values() if rows) == [1] * 5
    for sql in BAD_STATEMENTS:
        with pytest.raises(ScriptError):
            runner.run(sql, NODES)
        assert dump(catalog_url) == before, sql


def test_a_script_stops_at_its_first_error_and_keeps_what_was_done(runner: ScriptRunner) -> None:
    with pytest.raises(ScriptError) as error:
        runner.run("CREATE ZONE s1 (REPLICAS 9);\n CREATE ZONE s1; CREATE ZONE s2", NODES)
    assert error.value.kind is ErrorKind.ZONE_ALREADY_EXISTS
    assert (error.value.statement, error.value.line, error.value.column) == (2, 2, 14)
    (done,) = error.value.results
    assert done.to_json() == {
        "n": 1,
        "sql": "CREATE ZONE s1 (REPLICAS 9)",
        "applied": True,
        "effect": {
            "op": "create",
            "zone": "S1",
            "params": {
                "partitions": 25,
                "replicas": 9,
                "quorum_size": 2,
                "auto_scale_up": 0,
                "auto_scale_down": 2147483647,
                "nodes_filter": "$..*",
                "storage_profiles": ["default"],
                "consistency_mode": "STRONG_CONSISTENCY",
                "distribution_algorithm": "rendezvous",
            },
        },
        "zone_id": 1,
        "catalog_version": 1,
        "warnings": [
            {
                "name": "REPLICAS_ABOVE_DATA_NODES",
                "message": "REPLICAS 9, but 3 data nodes match now: "
                "each partition has 3 replicas until more nodes join",
            }
        ],
    }
    (again,) = runner.run("CREATE ZONE IF NOT EXISTS s1", NODES)
    assert (again.applied, again.effect, again.zone_id, again.catalog_version) == (False, {"op": "noop"}, 1, 1)


def test_the_outbox_has_each_intent_in_order(runner: ScriptRunner, store: CatalogStore) -> None:
    runner.run("CREATE ZONE a; ALTER ZONE a SET REPLICAS 2; ALTER ZONE a SET REPLICAS 2; DROP ZONE a", NODES)
    rows = store.outbox.unsent()
    intents = [ZoneIntent.decode(row.payload) for row in rows]
    assert [(row.version, row.zone_id) for row in rows] == [(1, 1), (2, 1), (3, 1)]
    assert [(intent.version, intent.zone.replicas, intent.dropped) for intent in intents] == [
        (1, 1, False),
        (2, 2, False),
        (3, 2, True),
    ]
    assert store.outbox.unsent(limit=1) == rows[:1]
    assert store.outbox.mark_sent(rows[:2]) == 2
    assert store.outbox.mark_sent(rows[:2]) == 0
    assert store.outbox.unsent() == rows[2:]
    assert store.outbox.mark_sent(()) == 0


def test_several_relays_mark_each_row_once(runner: ScriptRunner, store: CatalogStore) -> None:
    runner.run(";".join(f"CREATE ZONE z{n}" for n in range(20)), NODES)
    marked: list[int] = []

    def relay() -> None:
        while rows := store.outbox.unsent(limit=3):
            marked.append(store.outbox.mark_sent(rows))

    run_at_once(relay, relay, relay)
    assert sum(marked) == 20


def test_commits_are_told_to_listeners(runner: ScriptRunner, store: CatalogStore) -> None:
    told: list[int] = []
    stop = store.on_commit(told.append)
    runner.run("CREATE ZONE a; CREATE ZONE IF NOT EXISTS a; CREATE ZONE b", NODES)
    assert told == [1, 2]
    stop()
    stop()
    runner.run("DROP ZONE a", NODES)
    assert told == [1, 2]


def test_a_listener_that_fails_does_not_fail_the_statement(runner: ScriptRunner, store: CatalogStore) -> None:
    """The listener fails as when the event loop that it would wake is closed already."""

    def fails(version: int) -> None:
        raise RuntimeError("Event loop is closed")

    told: list[int] = []
    store.on_commit(fails)
    store.on_commit(told.append)
    assert runner.run("CREATE ZONE a", NODES)[0].applied
    assert told == [1]


def entry(zone_id: int) -> tuple[ZoneEntry, ...]:
    zone = Zone(ZoneId(zone_id), f"Z{zone_id}", 1, 1, None, ("default",))
    return (ZoneEntry(EntryKind.WRITTEN, zone),)


def test_a_version_and_a_statement_id_are_taken_once(store: CatalogStore, catalog_url: str) -> None:
    unit_of_work = store.unit_of_work
    base = CatalogSnapshot()
    assert unit_of_work.commit(base, [new_version(base, entry(1), "a")]) is CommitOutcome.COMMITTED
    before = dump(catalog_url)
    assert unit_of_work.commit(base, [new_version(base, entry(2), "b")]) is CommitOutcome.CONFLICT
    newest = unit_of_work.snapshot()
    assert unit_of_work.commit(newest, [new_version(newest, entry(2), "a")]) is CommitOutcome.CONFLICT
    # Of several versions one that cannot be stored takes the others along.
    second = new_version(newest, entry(2), "c")
    third = new_version(second.after, entry(3), "a")
    assert unit_of_work.commit(newest, [second, third]) is CommitOutcome.CONFLICT
    assert dump(catalog_url) == before
    for versions in ((), [new_version(newest, (), "c")]):
        with pytest.raises(ValueError, match="at least one entry"):
            unit_of_work.commit(newest, versions)


def run_at_once(*works: Any) -> None:
    """Each in a thread of its own; an exception of any fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def coordinators(store: CatalogStore, url: str, count: int) -> list[CatalogStore]:
    """PostgreSQL: a store each, as in processes of their own. SQLite has one writer: they share the store."""
    if url.startswith("sqlite"):
        return [store] * count
    return [CatalogStore.open(url) for _ in range(count)]


def test_two_coordinators_race_and_lose_nothing(store: CatalogStore, catalog_url: str) -> None:
    """Exactly one version for each statement, none lost, none twice."""
    stores = coordinators(store, catalog_url, 2)

    def work(number: int) -> None:
        service = CatalogService(stores[number].unit_of_work)
        for n in range(25):
            service.execute(parse_ddl(f"CREATE ZONE z_{number}_{n}"), NODES)

    run_at_once(lambda: work(0), lambda: work(1))
    snapshot = store.unit_of_work.snapshot()
    assert snapshot.version == 50
    assert {zone.name for zone in snapshot.zones} == {f"Z_{number}_{n}" for number in (0, 1) for n in range(25)}
    assert [record.version for record in store.history()] == list(range(1, 51))
    assert [row.version for row in store.outbox.unsent()] == list(range(1, 51))
    for each in stores:
        each.close()


@pytest.mark.row("I3-002")
def test_the_same_change_from_ten_coordinators_is_one_version(store: CatalogStore, catalog_url: str) -> None:
    """I3-002: all ten have read the same version before the first commits."""
    CatalogService(store.unit_of_work).execute(parse_ddl("CREATE ZONE z"), NODES)
    stores = coordinators(store, catalog_url, 10)
    barrier = threading.Barrier(10)
    versions: list[int] = []

    def work(each: CatalogStore) -> None:
        waited = False

        def meet(*_: object) -> None:
            nonlocal waited
            if not waited:
                waited = True
                barrier.wait(timeout=60)

        (executed,) = CatalogService(each.unit_of_work, checks=[meet]).execute(
            parse_ddl("ALTER ZONE z SET (REPLICAS 3, QUORUM SIZE 2)"), NODES
        )
        versions.append(executed.version)

    run_at_once(*[lambda each=each: work(each) for each in stores])
    assert versions == [2] * 10
    assert store.unit_of_work.snapshot().version == 2
    assert len(store.outbox.unsent()) == 2
    for each in stores:
        each.close()


def break_first_commit(engine: Engine, breaks: Callable[[Connection], None]) -> None:
    """The connection is lost around the first COMMIT, after what ``breaks`` does."""
    is_lost = False

    def lose(connection: Connection) -> None:
        nonlocal is_lost
        if not is_lost:
            is_lost = True
            breaks(connection)
            raise OperationalError("COMMIT", {}, Exception("the server closed the connection"))

    event.listen(engine, "commit", lose)


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_is_read_back_and_never_repeated_blindly(
    store: CatalogStore, catalog_url: str, committed: bool
) -> None:
    """The answer is lost before COMMIT reached the database, or behind."""
    engine = open_engine(parse_url(catalog_url))
    end = (lambda raw: raw.commit()) if committed else (lambda raw: raw.rollback())
    break_first_commit(engine, lambda connection: end(connection.connection))
    unit_of_work = SqlUnitOfWork(engine, lambda: 1, lambda version: None)
    (executed,) = CatalogService(unit_of_work).execute(parse_ddl("CREATE ZONE a"), NODES)
    assert executed.version == 1
    assert [record.statement for record in store.history()] == ["CREATE ZONE a"]
    engine.dispose()


def test_a_connection_killed_at_commit(empty_postgres: str) -> None:
    """PostgreSQL ends the session between the writes and COMMIT: the statement still happens, once."""
    migrate(empty_postgres)
    store = CatalogStore.open(empty_postgres)
    killer = create_engine(parse_url(empty_postgres), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    engine = open_engine(parse_url(empty_postgres))
    kills = 0

    def kill(connection: Connection) -> None:
        nonlocal kills
        kills += 1
        if kills == 1:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with killer.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    event.listen(engine, "commit", kill)
    unit_of_work = SqlUnitOfWork(engine, lambda: 1, lambda version: None)
    (executed,) = CatalogService(unit_of_work).execute(parse_ddl("CREATE ZONE a"), NODES)
    assert executed.version == 1
    assert kills == 2
    assert len(store.history()) == 1
    engine.dispose()
    store.close()


def test_a_database_that_stops_answering_is_unavailable(store: CatalogStore) -> None:
    """58000, with the driver's reason on one line; nothing else comes out of the store."""

    def broken(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("server\nclosed the connection"))

    event.listen(store._engine, "before_cursor_execute", broken)
    for call in (store.unit_of_work.snapshot, store.outbox.unsent, store.history):
        with pytest.raises(StoreError, match="server closed the connection") as error:
            call()
        assert error.value.kind is ErrorKind.CATALOG_UNAVAILABLE
    base = CatalogSnapshot()
    versions = [new_version(base, entry(1), "a")]
    with pytest.raises(StoreError):
        store.unit_of_work.commit(base, versions)
