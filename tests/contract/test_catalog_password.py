"""The password of the catalog's database, in a file that is replaced while a catalog is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from app.configuration.settings import Settings
from catalog.core.errors import StoreError
from catalog.store.catalog_store import CatalogStore
from catalog.store.connections import parse_url
from catalog.store.migrate import migrate
from tests.fixtures.databases import new_postgres

ROLE = "who_shows_a_password"


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of a migrated catalog."""
    url = new_postgres(postgres_server)
    migrate(url)
    return url


@pytest.fixture
def administrator(postgres_url: str) -> Iterator[Engine]:
    """Administrator of a server that asks only ``ROLE`` for a password."""
    engine = create_engine(parse_url(postgres_url), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {ROLE} LOGIN SUPERUSER"))
        rules = Path(str(connection.execute(text("SHOW hba_file")).scalar_one()))
        before = rules.read_text()
        rules.write_text(f"local all {ROLE} scram-sha-256\nhost all {ROLE} all scram-sha-256\n{before}")
        connection.execute(text("SELECT pg_reload_conf()"))
        yield engine
        rules.write_text(before)
        connection.execute(text("SELECT pg_reload_conf()"))
        connection.execute(text(f"DROP ROLE {ROLE}"))


def test_a_replaced_password_is_used_for_new_connections(
    tmp_path: Path, postgres_url: str, administrator: Engine
) -> None:
    """A wrong or missing one is named by its file, and the right one is used again; never is it shown."""
    file = tmp_path / "password"

    def change(password: str) -> None:
        """Change the password in the database, whose connections end."""
        with administrator.connect() as connection:
            connection.execute(text(f"ALTER ROLE {ROLE} PASSWORD '{password}'"))
            ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = :role"
            connection.execute(text(ended), {"role": ROLE})

    change("first-secret")
    file.write_text("first-secret\n")
    url = parse_url(postgres_url)._replace(username=ROLE, password=None).render_as_string()
    store = CatalogStore.open(Settings(catalog_url=url, catalog_password_file=file).catalog)
    try:
        assert not store.history()
        change("second-secret")
        with pytest.raises(StoreError, match=f"the password is that of {file}") as refused:
            store.history()
        assert "secret" not in str(refused.value)
        file.unlink()
        with pytest.raises(StoreError, match=f"secret file {file}: No such file"):
            store.history()
        file.write_text("second-secret\n")
        assert not store.history()
    finally:
        store.close()
