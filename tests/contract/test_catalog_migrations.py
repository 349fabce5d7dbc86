"""The migrations lead to exactly the tables that the code uses, on both databases."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from catalog.core.errors import ErrorKind, StoreError
from catalog.store import CatalogStore
from catalog.store.engine import parse_url
from catalog.store.migrate import migrate
from catalog.store.tables import METADATA

HEAD = "0003"


def test_from_nothing_and_again(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory does not matter, and neither does repeating."""
    monkeypatch.chdir(tmp_path)
    assert migrate(empty_url) == (None, HEAD)
    assert migrate(empty_url) == (HEAD, HEAD)


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
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refused in (CatalogStore.open, migrate):
        with pytest.raises(StoreError, match=rf"schema 9999, which is newer than this build's {HEAD}"):
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
