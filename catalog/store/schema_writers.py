"""Builds that can still write a catalog whose schema is newer than theirs: one row, filled by migrations.

So builds of two ages may run side by side, and the newer one may migrate first. A migration that an earlier
build can live with leaves the row as it is; any other sets it to its own revision, and earlier builds are
refused.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Integer, String, Table, inspect, select, update

from catalog.store.tables import METADATA

SCHEMA_WRITERS = Table(
    "schema_writers",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False, comment="1: there is one row"),
    Column("oldest", String(32), nullable=False, comment="the oldest schema whose builds can write this one"),
)


def oldest_writer(connection: Connection) -> str | None:
    """A revision; None for a schema that says nothing of it."""
    if not inspect(connection).has_table(SCHEMA_WRITERS.name):
        return None
    return connection.execute(select(SCHEMA_WRITERS.c.oldest)).scalar_one_or_none()


def raise_oldest_writer(connection: Connection, schema: str) -> None:
    """Builds whose own schema is earlier than ``schema`` are refused from now on."""
    raised = update(SCHEMA_WRITERS).where(SCHEMA_WRITERS.c.oldest < schema).values(oldest=schema)
    connection.execute(raised)
