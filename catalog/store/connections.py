"""Connections to the catalog's database: SQLite for one writer process, PostgreSQL for several.

SQLite: write-ahead log, synchronous=FULL (a committed version survives a power cut), foreign keys checked, and
transactions that mean to write take the write lock at once. PostgreSQL: psycopg 3, with limits on how long a
frozen coordinator can hold up the others. Texts of people are stored as every database takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.core.errors import ErrorKind, StoreError
from catalog.secret_files import PASSWORD_FILE, read_secret

BUSY_TIMEOUT_MS = 5000
WRITES = "zonekeeper_writes"

_POSTGRESQL_ARGS = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "zonekeeper",
    # A coordinator that freezes inside a transaction holds up the others' next version no longer than this.
    "options": "-c lock_timeout=5s -c statement_timeout=15s -c idle_in_transaction_session_timeout=15s",
}


REFUSED = "password authentication failed"
"""PostgreSQL's words for a wrong password."""


def parse_url(url: str) -> URL:
    """The URL with the driver that we use. Raises StoreError for any other database."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, "the catalog's URL is not a database URL") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            message = "a catalog in SQLite needs a file, as in sqlite:////var/lib/zonekeeper/catalog.sqlite"
            raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    message = f"a catalog is kept in SQLite or PostgreSQL, not in {backend}"
    raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message)


def open_engine(url: URL) -> Engine:
    """An engine; connects when first used. Its errors, which are logged, have no parameters."""
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, hide_parameters=True)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    args = {name: value for name, value in _POSTGRESQL_ARGS.items() if name not in url.query}
    engine = create_engine(
        url.difference_update_query([PASSWORD_FILE]),
        connect_args=args,
        pool_pre_ping=True,
        pool_size=2,
        max_overflow=2,
        hide_parameters=True,
    )
    if PASSWORD_FILE in url.query:
        _read_password(engine, Path(str(url.query[PASSWORD_FILE])))
    return engine


def _read_password(engine: Engine, file: Path) -> None:
    """Read the password for each connection anew: it is replaced while all runs."""

    def connect(dialect: Dialect, _: object, args: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        failure = dialect.loaded_dbapi.OperationalError
        try:
            password = read_secret(file)
        except ValueError as error:
            raise failure(str(error)) from None
        try:
            return dialect.connect(*args, **{**parameters, "password": password})
        except failure as error:
            if REFUSED not in str(error):
                raise
            raise failure(f"{error} (the password is that of {file})") from error

    event.listen(engine, "do_connect", connect)


def writer_lock(url: URL) -> FileLock | None:
    """SQLite: held by the one process that may write, freed by the kernel when that ends. PostgreSQL: none."""
    if url.get_backend_name() != "sqlite":
        return None
    path = Path(str(url.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        message = (
            f"another process writes to the catalog {path.name}; SQLite takes one writer process, "
            "several need PostgreSQL (ZONEKEEPER_CATALOG_URL=postgresql://...)"
        )
        raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message) from error
    return lock


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection for reading. Raises StoreError when the database does not answer."""
    with available(), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes, committed at its end. Raises StoreError when there is no answer."""
    with available(), engine.connect() as plain:
        connection = plain.execution_options(**{WRITES: True})
        with connection.begin():
            yield connection


@contextmanager
def available() -> Iterator[None]:
    """Raise errors of the database's driver as ours: 58000, try again."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        message = f"the catalog's database does not answer: {' '.join(reason.split())}"
        raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, message) from error


def _prepare_sqlite(connection: Any, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transaction handling begins too late for BEGIN IMMEDIATE: ``_begin_sqlite`` does it.
    connection.isolation_level = None
    execute: Callable[[str], Any] = connection.execute
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def storable(text: str) -> str:
    """PostgreSQL takes no NUL, and no database half a surrogate pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
