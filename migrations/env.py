"""Alembic's entrance: runs revisions on the connection that the caller has opened.

The transaction is the caller's too (``catalog.store.migrate``), so all revisions of an upgrade come together.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from catalog.store.tables import METADATA


def run() -> None:
    connection: Connection | None = context.config.attributes.get("connection")
    if connection is None:
        raise RuntimeError("migrations run through `zonectl migrate`, which opens the connection")
    context.configure(connection=connection, target_metadata=METADATA, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


run()
