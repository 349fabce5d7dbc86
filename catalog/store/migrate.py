"""Brings a catalog database to this build's schema, by Alembic and without a configuration file.

The scripts are found in the installed ``migrations`` package, so the working directory does not matter.
"""

from __future__ import annotations

from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from catalog.core.errors import ErrorKind, StoreError
from catalog.store.engine import WRITES, available, open_engine, parse_url, reading, writer_lock

ADVISORY_LOCK = 0x5A6F6E654B  # any number that no other application of the database uses


def migrate(url: str) -> tuple[str | None, str]:
    """Upgrades to the newest revision: (before, after); before is None for an empty database.

    One transaction: an interrupted migration leaves the old schema. Several processes may call it at once; one
    works, the others find nothing left to do. Raises StoreError for a database newer than this build.
    """
    parsed = parse_url(url)
    lock = writer_lock(parsed)
    engine = open_engine(parsed)
    try:
        with available(), engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
                return _upgrade(connection)
    finally:
        engine.dispose()
        if lock:
            lock.release()


def require_current(engine: Engine) -> None:
    """Raises StoreError unless the database has exactly this build's schema."""
    with reading(engine) as connection:
        found = _revision(connection)
    wanted = _head(_config())
    if found == wanted:
        return
    if found is None:
        message = "the catalog's database is empty: run `zonectl migrate`"
    elif found not in _known(_config()):
        message = f"the catalog's database has schema {found}, which is newer than this build's {wanted}"
    else:
        message = f"the catalog's database has schema {found}, this build needs {wanted}: run `zonectl migrate`"
    raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)


def _upgrade(connection: Connection) -> tuple[str | None, str]:
    config = _config()
    before = _revision(connection)
    if before is not None and before not in _known(config):
        message = (
            f"the catalog's database has schema {before}, which is newer than this build's {_head(config)}"
        )
        raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return before, _head(config)


def _config() -> Config:
    config = Config()
    # Alembic's options read % as interpolation; a path may hold one.
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _head(config: Config) -> str:
    head = ScriptDirectory.from_config(config).get_current_head()
    if head is None:
        raise AssertionError("the migrations package holds no revision")
    return head


def _known(config: Config) -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())
