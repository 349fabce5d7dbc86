"""The tables of the statement log: what clients have asked for, and the answers until they expire.

Invariants: a statement id is given once; of one principal and protocol at most one row has an idempotency
key; only the row's ``owner`` writes its outcome; pages are written in the transaction that ends the statement,
never later.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from catalog.store.tables import METADATA

STATEMENT_LOG = Table(
    "statement_log",
    METADATA,
    Column("statement_id", String(64), primary_key=True),
    Column("protocol", String(16), nullable=False),
    Column("idempotency_key", String(300), nullable=True),
    Column("sql_hash", String(64), nullable=False, comment="SHA-256 of the text, hexadecimal"),
    Column("sql", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False, comment="the server that runs it"),
    Column("lease_until_us", BigInteger, nullable=False, comment="later than this the owner counts as dead"),
    Column("cancel_requested", Boolean, nullable=False),
    Column("created_us", BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
    Column("finished_us", BigInteger, nullable=True),
    Column("expires_us", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=True, comment="compressed JSON: the results without their rows"),
    Column("error", Text, nullable=True, comment="JSON: a problem document"),
    Column("warnings", Text, nullable=False, comment="JSON list"),
    Column("progress", Text, nullable=True, comment="JSON: partitions done and total"),
    Column("token", Integer, nullable=False, comment="the newest page token that was answered"),
    Column("token_answer", Text, nullable=True, comment="JSON: what it was answered with"),
    Column("principal_source", String(255), nullable=False, server_default=text("''")),
    Column("principal_name", String(128), nullable=False, server_default=text("''")),
    Column("scope", Text, nullable=False, server_default=text("''"), comment="of the token; empty: none"),
    UniqueConstraint(
        "protocol",
        "principal_source",
        "principal_name",
        "idempotency_key",
        name="uq_statement_log_idempotency",
    ),
)

Index("ix_statement_log_expires_us", STATEMENT_LOG.c.expires_us)

STATEMENT_PAGES = Table(
    "statement_pages",
    METADATA,
    Column("statement_id", String(64), ForeignKey(STATEMENT_LOG.c.statement_id), primary_key=True),
    Column("result", Integer, primary_key=True, autoincrement=False, comment="number of the result, from 1"),
    Column("page", Integer, primary_key=True, autoincrement=False, comment="from 0"),
    Column("body", LargeBinary, nullable=False, comment="compressed JSON list of rows"),
)
