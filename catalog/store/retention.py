"""Removal of old versions, of what was published of them, and of audit records, each after its own time.

What stays can be read as before: the newest version of that age and all after it, with every zone and table as
of then. Of a version before, only the rows stay that later ones refer to; it is marked, and not read any more.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, Table, and_, delete, exists, func, select, update

from catalog.core.retention import KEEP_ALL, Retention, Trimmed
from catalog.store.connections import reading, writing
from catalog.store.tables import AUDIT_LOG, CATALOG_VERSIONS, OUTBOX, TABLE_VERSIONS, ZONE_VERSIONS

ROWS_AT_ONCE = 1_000
"""Versions, and audit records, that one round looks at: a writer waits for no more."""
DAY_US = 86_400 * 1_000_000


class SqlRetention:
    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._now_us = now_us

    def trim(self, keep: Retention) -> Trimmed:
        """One round, in one transaction for each kind; nothing done: nothing is left. Raises StoreError."""
        if keep == KEEP_ALL:
            return Trimmed()
        now = self._now_us()
        versions = self._trim_versions(now - keep.version_days * DAY_US) if keep.version_days else 0
        audits = self._trim_audit(now - keep.audit_days * DAY_US) if keep.audit_days else 0
        return Trimmed(versions, audits)

    def _trim_versions(self, before_us: int) -> int:
        table = CATALOG_VERSIONS
        oldest = (
            select(table.c.version, table.c.committed_at_us)
            .where(table.c.kept)
            .order_by(table.c.version)
            .limit(ROWS_AT_ONCE + 1)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(oldest).all()
        old = [row.version for row in rows if row.committed_at_us < before_us]
        if len(old) < 2:
            return 0
        first_kept = old[-1]
        with writing(self._engine) as connection:
            marked = connection.execute(
                update(table).where(table.c.version < first_kept, table.c.kept).values(kept=False)
            )
            for versions, key in ((ZONE_VERSIONS, "zone_id"), (TABLE_VERSIONS, "table_id")):
                _forget(connection, versions, key, first_kept)
            _forget_sent(connection, first_kept)
            _forget_versions(connection, first_kept)
            return marked.rowcount

    def _trim_audit(self, before_us: int) -> int:
        table = AUDIT_LOG
        first = select(table.c.number, table.c.at_us).order_by(table.c.number).limit(1)
        with reading(self._engine) as connection:
            oldest = connection.execute(first).one_or_none()
        if oldest is None or oldest.at_us >= before_us:
            return 0
        with writing(self._engine) as connection:
            old = and_(table.c.number < oldest.number + ROWS_AT_ONCE, table.c.at_us < before_us)
            return connection.execute(delete(table).where(old)).rowcount


def _forget(connection: Connection, table: Table, key: str, first_kept: int) -> None:
    """Rows that say nothing about ``first_kept`` or a later version."""
    later = table.alias("later")
    superseded = exists().where(
        later.c[key] == table.c[key], later.c.version > table.c.version, later.c.version <= first_kept
    )
    old = table.c.version < first_kept
    connection.execute(delete(table).where(old, superseded))
    connection.execute(delete(table).where(old, table.c.dropped))


def _forget_sent(connection: Connection, first_kept: int) -> None:
    """Each zone's newest row stays, for who asked for it last, and the newest of all, by which the metastore is
    known to be the catalog's."""
    sent = OUTBOX.c.sent_at_us.is_not(None)
    newest = select(func.max(OUTBOX.c.version)).where(sent).scalar_subquery()
    is_of_zone = exists().where(
        ZONE_VERSIONS.c.zone_id == OUTBOX.c.zone_id, ZONE_VERSIONS.c.version == OUTBOX.c.version
    )
    old = (OUTBOX.c.version < first_kept, OUTBOX.c.version < newest)
    connection.execute(delete(OUTBOX).where(*old, sent, ~is_of_zone))


def _forget_versions(connection: Connection, first_kept: int) -> None:
    table = CATALOG_VERSIONS
    references = (exists().where(other.c.version == table.c.version) for other in REFERRING)
    connection.execute(
        delete(table).where(table.c.version < first_kept, *(~reference for reference in references))
    )


REFERRING = (ZONE_VERSIONS, TABLE_VERSIONS, OUTBOX)
