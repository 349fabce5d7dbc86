"""The table of the audit: who changed what. Rows are added and never changed."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text, text

from catalog.store.tables import METADATA

AUDIT_LOG = Table(
    "audit_log",
    METADATA,
    # SQLite numbers rows by itself only where the type is INTEGER.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
    Column("action", String(64), nullable=False),
    Column("subject", String(300), nullable=False, comment="zone, table, node or operation"),
    Column("actor", String(100), nullable=False, comment="empty: nobody gave a name"),
    Column("verified", Boolean, nullable=False, comment="whether a proxy has checked the name"),
    Column("channel", String(16), nullable=False),
    Column("address", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("details", Text, nullable=False, comment="the statement, or the request as JSON"),
    Column("version_before", BigInteger, nullable=False, comment="of the catalog"),
    Column("version_after", BigInteger, nullable=False),
    # The default is for builds of an earlier schema, which write none.
    Column("request_id", String(64), nullable=False, server_default=text("''"), comment="empty: of no request"),
)
Index("ix_audit_log_subject", AUDIT_LOG.c.subject, AUDIT_LOG.c.number)
Index("ix_audit_log_version_after", AUDIT_LOG.c.version_after)
