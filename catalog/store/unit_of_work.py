"""Catalog versions in SQL transactions, and the outbox of intents that they leave to be published.

A version is written with its zones, tables, outbox rows and audit records, or not at all. Intents are published
in the order of their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import Engine, select, tuple_, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from catalog.core.snapshot import CatalogSnapshot
from catalog.core.statement_batch import NewVersion
from catalog.core.zone import ZoneId
from catalog.ports import CommitOutcome, OutboxRow
from catalog.store.connections import WRITES, available, reading, writing
from catalog.store.repository import KnownSnapshot, insert_versions, read_snapshot, read_version_of
from catalog.store.tables import OUTBOX

LOCK_NOT_AVAILABLE = "55P03"


class SqlUnitOfWork:
    """``catalog.ports.UnitOfWork`` over SQLAlchemy Core.

    ``now_us`` is the time for the history, in microseconds; ``committed`` is called with each new version, in
    the calling thread, behind the commit. Any thread may read.
    """

    def __init__(self, engine: Engine, now_us: Callable[[], int], committed: Callable[[int], None]) -> None:
        self._engine = engine
        self._now_us = now_us
        self._committed = committed
        self._newest: KnownSnapshot | None = None

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """Reads the zones only when another writer was faster: a statement costs the same with many zones."""
        newest = self._newest
        with reading(self._engine) as connection:
            known = read_snapshot(connection, version, newest)
        # What another thread has read or committed meanwhile may be newer.
        if version is None and self._newest is newest:
            self._newest = known
        return known.snapshot

    def version_of(self, statement_id: str) -> int | None:
        with reading(self._engine) as connection:
            return read_version_of(connection, statement_id)

    def commit(self, base: CatalogSnapshot, versions: Sequence[NewVersion]) -> CommitOutcome:
        if not versions or not all(version.entries for version in versions):
            raise ValueError("a version has at least one entry")
        with available(), self._engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            try:
                insert_versions(connection, base, versions, self._now_us())
            except (IntegrityError, OperationalError) as error:
                # Another coordinator has this version, or holds it uncommitted: so far it was faster.
                held = getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE
                if not held and not isinstance(error, IntegrityError):
                    raise
                connection.rollback()
                return CommitOutcome.CONFLICT
            try:
                connection.commit()
            except DBAPIError:
                # The answer to COMMIT never came: it may have happened.
                with suppress(SQLAlchemyError):
                    connection.invalidate()
                return CommitOutcome.UNKNOWN
        self._newest = KnownSnapshot(versions[-1].after, versions[-1].stamp.statement_id)
        for version in versions:
            self._committed(version.after.version)
        return CommitOutcome.COMMITTED


class SqlOutbox:
    """Intents on their way to the metastore. Any number of relays may read and mark at once: nothing is
    claimed, because publishing twice does no harm (an intent only ever moves to a higher version) and losing
    would."""

    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._now_us = now_us

    def unsent(self, limit: int = 100) -> tuple[OutboxRow, ...]:
        query = (
            select(OUTBOX.c.version, OUTBOX.c.zone_id, OUTBOX.c.payload)
            .where(OUTBOX.c.sent_at_us.is_(None))
            .order_by(OUTBOX.c.version, OUTBOX.c.zone_id)
            .limit(limit)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return tuple(OutboxRow(row.version, ZoneId(row.zone_id), bytes(row.payload)) for row in rows)

    def mark_sent(self, rows: tuple[OutboxRow, ...]) -> int:
        """Mark rows as sent; returns how many were not marked before: a second relay's call counts none."""
        if not rows:
            return 0
        keys = [(row.version, row.zone_id) for row in rows]
        statement = (
            update(OUTBOX)
            .where(tuple_(OUTBOX.c.version, OUTBOX.c.zone_id).in_(keys), OUTBOX.c.sent_at_us.is_(None))
            .values(sent_at_us=self._now_us())
        )
        with writing(self._engine) as connection:
            return connection.execute(statement).rowcount
