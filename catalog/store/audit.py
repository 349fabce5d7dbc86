"""Adding to the audit and reading it. Rows of catalog versions are added in the transaction of the version."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import Connection, Engine, RowMapping, func, insert, select

from catalog.core.audit import NAME_MAX, REASON_MAX, Actor, AuditEntry, AuditFilter, AuditRecord, Channel
from catalog.store.connections import reading, storable, writing
from catalog.store.tables import AUDIT_LOG

DETAILS_MAX = 10_000
SUBJECT_MAX = 300
VERSIONS = ("version_before", "version_after")


class SqlAudit:
    """Raises StoreError when the database does not answer."""

    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._now_us = now_us

    def record(self, entry: AuditEntry) -> None:
        """A change that is not one of the catalog."""
        with writing(self._engine) as connection:
            insert_audit(connection, [entry], self._now_us())

    def read(self, only: AuditFilter, limit: int, below: int | None = None) -> tuple[AuditRecord, ...]:
        """The newest first, at most ``limit``; ``below``: only those with a lower number."""
        table = AUDIT_LOG
        query = select(table).order_by(table.c.number.desc()).limit(limit)
        if below is not None:
            query = query.where(table.c.number < below)
        for column, text in ((table.c.action, only.action), (table.c.subject, only.subject)):
            if text:
                query = query.where(func.upper(column) == storable(text).upper())
        if only.by:
            query = query.where(table.c.actor == storable(only.by))
        with reading(self._engine) as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())

    def of_subject(self, subject: str, since_us: int, limit: int) -> tuple[AuditRecord, ...]:
        """The newest first; found by an index, however many records there are."""
        table = AUDIT_LOG
        same = (table.c.subject == subject, table.c.at_us >= since_us)
        query = select(table).where(*same).order_by(table.c.number.desc()).limit(limit)
        with reading(self._engine) as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())


def insert_audit(connection: Connection, entries: Iterable[AuditEntry], at_us: int) -> None:
    """Insert audit entries in the caller's transaction. What is too long is cut, and what no database takes is
    replaced: an audit that refuses is none."""
    rows = [
        {
            "at_us": at_us,
            "action": storable(entry.action)[:64],
            "subject": storable(entry.subject)[:SUBJECT_MAX],
            "actor": storable(entry.actor.name)[:NAME_MAX],
            "verified": entry.actor.verified,
            "channel": entry.actor.channel.value,
            "address": storable(entry.actor.address)[:64],
            "reason": storable(entry.reason)[:REASON_MAX],
            "request_id": storable(entry.actor.request_id)[:64],
            "details": storable(entry.details)[:DETAILS_MAX],
            **{name: getattr(entry, name) for name in VERSIONS},
        }
        for entry in entries
    ]
    connection.execute(insert(AUDIT_LOG), rows)


def _record(row: RowMapping) -> AuditRecord:
    actor = Actor(
        row["actor"], row["verified"], Channel(row["channel"]), row["address"], request_id=row["request_id"]
    )
    plain = {name: row[name] for name in ("action", "subject", "reason", "details", *VERSIONS)}
    return AuditRecord(row["number"], row["at_us"], AuditEntry(**plain, actor=actor))
