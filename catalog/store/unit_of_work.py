"""One catalog version = one SQL transaction: the version, its zones and its outbox rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from catalog.core.snapshot import CatalogEntry, CatalogSnapshot
from catalog.ports import CommitOutcome, StatementStamp
from catalog.store.connections import WRITES, available, reading
from catalog.store.repository import KnownSnapshot, insert_version, read_snapshot, read_version_of

LOCK_NOT_AVAILABLE = "55P03"


class SqlUnitOfWork:
    """``catalog.ports.UnitOfWork`` over SQLAlchemy Core.

    ``now_us`` is the time for the history, in microseconds; ``committed`` is called with each new version, in
    the calling thread, behind the commit.
    """

    def __init__(self, engine: Engine, now_us: Callable[[], int], committed: Callable[[int], None]) -> None:
        self._engine = engine
        self._now_us = now_us
        self._committed = committed
        self._newest: KnownSnapshot | None = None

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """Reads the zones only when another writer was faster: a statement costs the same with many zones."""
        with reading(self._engine) as connection:
            found = read_snapshot(connection, version, self._newest)
        if version is None:
            self._newest = found
        return found.snapshot

    def version_of(self, statement_id: str) -> int | None:
        with reading(self._engine) as connection:
            return read_version_of(connection, statement_id)

    def commit(
        self, base: CatalogSnapshot, entries: tuple[CatalogEntry, ...], stamp: StatementStamp
    ) -> CommitOutcome:
        if not entries:
            raise ValueError("a version has at least one entry")
        snapshot = base.after(entries)
        with available(), self._engine.connect() as connection:
            connection = connection.execution_options(**{WRITES: True})
            try:
                insert_version(connection, snapshot, entries, stamp, self._now_us())
            except IntegrityError:
                connection.rollback()
                return CommitOutcome.CONFLICT
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                # Another coordinator holds the same version uncommitted: so far it was faster.
                connection.rollback()
                return CommitOutcome.CONFLICT
            if not self._commit(connection):
                return CommitOutcome.UNKNOWN
        self._newest = KnownSnapshot(snapshot, stamp.statement_id)
        self._committed(snapshot.version)
        return CommitOutcome.COMMITTED

    def _commit(self, connection: Connection) -> bool:
        """False when the answer to COMMIT never came: it may have happened."""
        try:
            connection.commit()
        except DBAPIError:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            return False
        return True
