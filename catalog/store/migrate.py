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

from catalog.core.errors import ErrorKind, SchemaTooNewError, StoreError
from catalog.core.level import LEVEL, schema_of
from catalog.store.connections import open_engine, parse_url, reading, writer_lock, writing
from catalog.store.tables import oldest_writer, raise_oldest_writer

ADVISORY_LOCK = 0x5A6F6E654B  # any number that no other application of the database uses


def migrate(url: str) -> tuple[str | None, str]:
    """Upgrades to the newest revision: (before, after); before is None for an empty database.

    One transaction: an interrupted migration leaves the old schema. Several processes may call it at once; one
    works, the others find nothing left to do. A newer database that this build can write stays as it is; raises
    SchemaTooNewError for one that it cannot, and StoreError. A new database is one that builds of an earlier
    release level than this one's never write.
    """
    parsed = parse_url(url)
    lock = writer_lock(parsed)
    engine = open_engine(parsed)
    try:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            return _upgrade(connection)
    finally:
        engine.dispose()
        if lock:
            lock.release()


def require_current(engine: Engine) -> None:
    """Raises StoreError unless the database has this build's schema, or a newer one that it can write."""
    with reading(engine) as connection:
        revision = _revision(connection)
        head = known_schemas()[0]
        is_newer = revision is not None and revision > head
        if is_newer and _is_writer(connection, head):
            return
    if revision == head:
        return
    if revision is None:
        message = "the catalog's database is empty: run `zonectl migrate`"
    elif is_newer:
        raise SchemaTooNewError(_too_new(revision, head))
    else:
        message = (
            f"the catalog's database has schema {revision}, this build needs {head}: run `zonectl migrate`"
        )
    raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)


def known_schemas() -> tuple[str, ...]:
    """Return the schemas of this build, the newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _upgrade(connection: Connection) -> tuple[str | None, str]:
    head, *_, first = known_schemas()
    before = _revision(connection)
    if before is not None and before < first:
        message = (
            f"the catalog's database has schema {before}, of before 0.2.0: run `zonectl migrate` of 0.2.0 first"
        )
        raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)
    if before is not None and before > head:
        if _is_writer(connection, head):
            return before, before
        raise SchemaTooNewError(_too_new(before, head))
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if before is None:
        raise_oldest_writer(connection, schema_of(LEVEL))
    return before, head


def _is_writer(connection: Connection, head: str) -> bool:
    """Check that a schema that this build does not know names it, or an earlier build, as able to write."""
    oldest = oldest_writer(connection)
    return oldest is not None and "" < oldest <= head


def _too_new(theirs: str, ours: str) -> str:
    return (
        f"the catalog's database has schema {theirs}, which is newer than this build's {ours} and cannot be "
        "written by it: use a newer build"
    )


def _config() -> Config:
    config = Config()
    # Alembic's options read % as interpolation; a path may hold one.
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
