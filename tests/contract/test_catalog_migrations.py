"""The migrations lead to exactly the tables that the code uses, on both databases."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from catalog.core.errors import ErrorKind, StoreError
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.connections import parse_url
from catalog.store.migrate import _config, migrate
from catalog.store.tables import METADATA
from tests.fixtures.script_runner import ScriptRunner

HEAD, FIRST = "0014", "0012"


def test_from_nothing_and_again(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory does not matter, and neither does repeating."""
    monkeypatch.chdir(tmp_path)
    assert migrate(empty_url) == (None, HEAD)
    assert migrate(empty_url) == (HEAD, HEAD)


def test_a_catalog_of_the_first_release(empty_url: str) -> None:
    """The rows of its schema stay as they were, and the next statement continues from them."""
    url = parse_url(empty_url)
    engine = create_engine(url, poolclass=NullPool)
    config = _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, FIRST)
        connection.execute(
            text("INSERT INTO catalog_versions VALUES (1, 'a', 'CREATE ZONE a', 2, 5, 1, NULL)"),
        )
        zone = "1, 1, false, 'A', 4, 3, NULL, '[\"default\"]', 0, 2147483647, '$..*', 'STRONG_CONSISTENCY', "
        connection.execute(text(f"INSERT INTO zone_versions VALUES ({zone} 'rendezvous', NULL, NULL)"))
    assert migrate(empty_url) == (FIRST, HEAD)
    store = CatalogStore.open(empty_url)
    before = store.unit_of_work.snapshot()
    assert [zone.name for zone in before.zones] == ["A"]
    assert (before.tables, before.next_table_id, before.default_zone_id) == ((), 1, None)
    nodes = (Node("n1"), Node("n2"))
    ScriptRunner(CatalogService(store.unit_of_work)).run("CREATE TABLE t (id INT PRIMARY KEY)", nodes)
    after = store.unit_of_work.snapshot()
    assert [zone.name for zone in after.zones] == ["A", "Default"]
    assert after.default_zone_id == 2
    store.close()


def test_a_catalog_of_before_the_first_release_is_refused(catalog_url: str) -> None:
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0011'"))
    with pytest.raises(StoreError, match=r"schema 0011, of before 0\.2\.0: run `zonectl migrate` of 0\.2\.0"):
        migrate(catalog_url)
    with pytest.raises(StoreError, match="schema 0011, this build needs"):
        CatalogStore.open(catalog_url)


def test_no_drift_between_migrations_and_tables(catalog_url: str) -> None:
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
        found = inspect(connection)
        for table in METADATA.sorted_tables:
            assert found.get_pk_constraint(table.name)["name"] == table.primary_key.name
            foreign = {key["name"] for key in found.get_foreign_keys(table.name)}
            assert foreign == {key.name for key in table.foreign_key_constraints}


def test_open_refuses_what_is_not_migrated(empty_url: str) -> None:
    with pytest.raises(StoreError, match="run `zonectl migrate`") as error:
        CatalogStore.open(empty_url)
    assert error.value.kind is ErrorKind.CATALOG_UNAVAILABLE
    migrate(empty_url)
    CatalogStore.open(empty_url).close()


def test_a_newer_schema_is_left_alone(catalog_url: str) -> None:
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE schema_writers"))
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (CatalogStore.open, migrate):
        with pytest.raises(StoreError, match=rf"schema 9999, which is newer than this build's {HEAD}"):
            refused(catalog_url)


def test_a_newer_schema_that_names_this_build_is_written(catalog_url: str) -> None:
    """A later build has added what this one does not know and need not: both run side by side."""
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE catalog_versions ADD COLUMN later_field INTEGER"))
        connection.execute(text("CREATE TABLE later_table (id INTEGER PRIMARY KEY)"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0099'"))
    assert migrate(catalog_url) == ("0099", "0099")
    store = CatalogStore.open(catalog_url)
    try:
        ScriptRunner(CatalogService(store.unit_of_work)).run("CREATE ZONE a", (Node("n1"), Node("n2")))
        assert [zone.name for zone in store.unit_of_work.snapshot().zones] == ["A"]
    finally:
        store.close()


@pytest.mark.parametrize("change", ["SET oldest = '0099'", "SET oldest = ''"])
def test_a_newer_schema_for_newer_builds_only_is_refused(catalog_url: str, change: str) -> None:
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE schema_writers {change}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0099'"))
    for refused in (CatalogStore.open, migrate):
        with pytest.raises(StoreError, match=r"schema 0099, .* use a newer build"):
            refused(catalog_url)


def test_several_processes_migrate_at_once(empty_postgres: str) -> None:
    """Each `serve` may migrate when it starts: one does, the others find it done."""
    answers: list[tuple[str | None, str]] = []
    threads = [threading.Thread(target=lambda: answers.append(migrate(empty_postgres))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == [(HEAD, HEAD)] * 3 + [(None, HEAD)]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "needs a file"),
        ("mysql://host/db", "not in mysql"),
        ("nonsense", "not a database URL"),
        ("postgresql://127.0.0.1:1/none", "does not answer"),
    ],
)
def test_urls_that_are_no_catalog(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as error:
        CatalogStore.open(url)
    assert error.value.kind is ErrorKind.CATALOG_UNAVAILABLE
    assert error.value.kind.http_status == 503
