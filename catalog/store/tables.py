"""The catalog's tables: a history that is only ever added to, and an outbox.

Invariants: rows of ``catalog_versions``, ``zone_versions`` and ``table_versions`` never change but for
``kept``, and only ``catalog.store.retention`` deletes some, so the catalog at any kept version can be read. The
newest version stays, and ids are never given twice. A version's number is its primary key, which is what makes
two writers of the same version conflict.
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
    MetaData,
    String,
    Table,
    Text,
    true,
)

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

CATALOG_VERSIONS = Table(
    "catalog_versions",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("statement_id", String(64), nullable=False, unique=True),
    Column("statement", Text, nullable=False),
    Column("next_zone_id", BigInteger, nullable=False),
    Column("committed_at_us", BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
    Column("next_table_id", BigInteger, nullable=False, server_default="1"),
    Column("default_zone_id", BigInteger, nullable=True, comment="NULL: there is no default zone yet"),
    Column("kept", Boolean, nullable=False, server_default=true(), comment="whether it can be read"),
)

ZONE_VERSIONS = Table(
    "zone_versions",
    METADATA,
    Column("zone_id", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "version", BigInteger, ForeignKey(CATALOG_VERSIONS.c.version), primary_key=True, autoincrement=False
    ),
    Column("dropped", Boolean, nullable=False),
    Column("name", String(128), nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("replicas", Integer, nullable=False, comment="2147483647: ALL"),
    Column("quorum_size", Integer, nullable=True, comment="the explicit one; NULL: derived"),
    Column("storage_profiles", Text, nullable=False, comment="JSON list"),
    Column("auto_scale_up", Integer, nullable=False),
    Column("auto_scale_down", Integer, nullable=False),
    Column("nodes_filter", Text, nullable=False),
    Column("consistency_mode", String(64), nullable=False),
    Column("algorithm", String(64), nullable=False),
    Column("strategy", String(64), nullable=True, comment="of moves; NULL: the controllers' setting"),
    Column("loss_policy", String(64), nullable=True, comment="of zones of store servers; NULL: the default"),
    Column("life", String(64), nullable=True, comment="the statement that created it; NULL: not known"),
)

TABLE_VERSIONS = Table(
    "table_versions",
    METADATA,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "version", BigInteger, ForeignKey(CATALOG_VERSIONS.c.version), primary_key=True, autoincrement=False
    ),
    Column("dropped", Boolean, nullable=False),
    Column("name", String(128), nullable=False),
    Column("zone_id", BigInteger, nullable=False),
    Column("storage_profile", Text, nullable=False),
    Column("columns", Text, nullable=False, comment="JSON list of [name, type, nullable, default]"),
    Column("primary_key", Text, nullable=False, comment="JSON list of column names"),
    Column("colocation", Text, nullable=False, comment="JSON list of column names"),
)

OUTBOX = Table(
    "outbox",
    METADATA,
    Column(
        "version", BigInteger, ForeignKey(CATALOG_VERSIONS.c.version), primary_key=True, autoincrement=False
    ),
    Column("zone_id", BigInteger, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False, comment="an encoded ZoneIntent"),
    Column("sent_at_us", BigInteger, nullable=True, comment="NULL: not sent yet"),
)

Index("ix_zone_versions_version", ZONE_VERSIONS.c.version)
Index("ix_table_versions_version", TABLE_VERSIONS.c.version)
_UNSENT = OUTBOX.c.sent_at_us.is_(None)
# Partial: what is sent stays as history and must not slow down looking for what is not.
Index("ix_outbox_unsent", OUTBOX.c.version, OUTBOX.c.zone_id, sqlite_where=_UNSENT, postgresql_where=_UNSENT)
