"""A probe of the catalog's database that writes nothing, not even the files beside one of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, text
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from app.diagnosis import checks
from app.diagnosis.checks import Check
from catalog.core.errors import StoreError
from catalog.store.connections import open_engine, parse_url, reading
from catalog.store.migrate import known_schemas

SCHEMA = "SELECT version_num FROM alembic_version"
BUSY_S = 3.0


def schema(catalog_url: str) -> Iterator[Check]:
    """Raises OSError with a line without the password, when the database cannot be reached."""
    try:
        url = parse_url(catalog_url)
    except StoreError as error:
        raise OSError(str(error)) from None
    is_file = url.get_backend_name() == "sqlite"
    where = str(url.database) if is_file else f"{url.database} at {url.host or 'this machine'}"
    theirs = _of_file(Path(str(url.database))) if is_file else _of_database(url, where)
    yield checks.catalog_schema(where, theirs, known_schemas())


def _of_file(path: Path) -> str:
    if not path.is_file():
        raise OSError(f"{path} does not exist")
    # Without a log nobody has the file open: it is read as it is, and no log is made.
    has_log = path.with_name(f"{path.name}-wal").exists()
    options = "mode=ro&readonly_shm=1" if has_log else "immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    try:
        with closing(sqlite3.connect(uri, BUSY_S, uri=True)) as connection:
            row = connection.execute(SCHEMA).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return ""
        raise OSError(f"{path}: {error}") from None
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from None
    return str(row[0]) if row else ""


def _of_database(url: URL, where: str) -> str:
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return str(connection.execute(text(SCHEMA)).scalar() or "")
    except ProgrammingError:
        return ""
    except (SQLAlchemyError, StoreError) as error:
        # The driver's text names host and user, and never the password; still only its kind is shown.
        raise OSError(f"{where} does not answer ({type(error).__name__})") from None
    finally:
        engine.dispose()
