"""The catalog's tables: a history that is only ever added to, and an outbox.

Invariants: rows of ``catalog_versions``, ``zone_versions`` and ``table_versions`` never change but for
``kept``, and only ``catalog.store.retention`` deletes some, so the catalog at any kept version can be read. The
newest version stays, and ids are never given twice. A version's number is its primary key, which is what makes
two writers of the same version conflict. Rows of the audit, which says who changed what, are added and never
changed.

The statement log holds what clients have asked for, and the answers until they expire. A statement id is given
once; of one principal and protocol at most one row has an idempotency key; only the row's ``owner`` writes its
outcome; pages are written in the transaction that ends the statement, never later.

Unlike zones, users and grants have no history, nor do the tokens, sessions and links of users: what was revoked
must not be read again by anybody, and a password's hash is kept no longer than it is valid. The audit says who
changed what. Invariants: a row of ``users``, ``roles``, ``role_members`` or ``grants`` changes only in the
transaction of a catalog version; no table holds a secret, only what one is compared with; what has an owner
belongs to the user that is there: it is inserted in a transaction that holds the user's row, and goes in the
one that deletes it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    inspect,
    select,
    text,
    true,
    update,
)

from catalog.core.authorisation import Principal

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


SOURCE_MAX = 255
NAME_MAX = 128


def _owner() -> tuple[Column[str], Column[str]]:
    return (
        Column("owner_source", String(SOURCE_MAX), nullable=False),
        Column("owner_name", String(NAME_MAX), nullable=False),
    )


USERS = Table(
    "users",
    METADATA,
    Column("source", String(SOURCE_MAX), primary_key=True, comment="local: of this catalog; else an issuer"),
    Column("name", String(NAME_MAX), primary_key=True),
    Column("password_hash", Text, nullable=True, comment="argon2id, encoded; NULL: no password logs in"),
    Column("is_active", Boolean, nullable=False),
    Column("created_version", BigInteger, nullable=False, comment="of the catalog"),
    Column("changed_version", BigInteger, nullable=False, comment="that changed password or state last"),
)

ROLES = Table(
    "roles",
    METADATA,
    Column("name", String(NAME_MAX), primary_key=True),
    Column("is_ready", Boolean, nullable=False, comment="made by the migration; nobody alters or drops it"),
    Column("created_version", BigInteger, nullable=False),
)

ROLE_MEMBERS = Table(
    "role_members",
    METADATA,
    Column("role", String(NAME_MAX), primary_key=True),
    Column("source", String(SOURCE_MAX), primary_key=True),
    Column("name", String(NAME_MAX), primary_key=True),
)

GRANTS = Table(
    "grants",
    METADATA,
    Column("source", String(SOURCE_MAX), primary_key=True, comment="of the grantee; role: a role"),
    Column("name", String(NAME_MAX), primary_key=True),
    Column("object", String(16), primary_key=True, comment="SYSTEM, ALL ZONES or ZONE"),
    Column("zone_id", BigInteger, primary_key=True, autoincrement=False, comment="0: the object is no zone"),
    Column("privilege", String(16), primary_key=True),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("token_id", String(32), primary_key=True),
    Column("secret_hash", String(64), nullable=False, unique=True, comment="SHA-256, hexadecimal"),
    *_owner(),
    Column("scope", Text, nullable=False, comment="JSON; empty: all that its owner may do"),
    Column("created_us", BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
    Column("expires_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger, nullable=True, comment="NULL: not revoked"),
)
Index("ix_tokens_owner", TOKENS.c.owner_source, TOKENS.c.owner_name)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("secret_hash", String(64), primary_key=True, comment="SHA-256, hexadecimal"),
    *_owner(),
    Column("csrf", String(64), nullable=False, comment="SHA-256, hexadecimal"),
    Column("created_us", BigInteger, nullable=False),
    Column("used_us", BigInteger, nullable=False, comment="last use"),
    Column("expires_us", BigInteger, nullable=False),
)
Index("ix_sessions_owner", SESSIONS.c.owner_source, SESSIONS.c.owner_name)

ONE_TIME_LINKS = Table(
    "one_time_links",
    METADATA,
    Column("secret_hash", String(64), primary_key=True, comment="SHA-256, hexadecimal"),
    *_owner(),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("used_us", BigInteger, nullable=True, comment="NULL: not used yet"),
)
Index("ix_one_time_links_owner", ONE_TIME_LINKS.c.owner_source, ONE_TIME_LINKS.c.owner_name)


def user_version(source: Column[str], name: Column[str]) -> ColumnElement[int]:
    """Select which of the users that had the name the row belongs to; 0: none of the catalog's."""
    same = USERS.c.source == source, USERS.c.name == name
    return func.coalesce(select(USERS.c.created_version).where(*same).scalar_subquery(), 0)


def belongs_to(
    principal: Principal, source: Column[str], name: Column[str]
) -> tuple[ColumnElement[bool], ColumnElement[bool], ColumnElement[bool]]:
    """A row of which these hold."""
    version = user_version(source, name) == principal.version
    return source == principal.source, name == principal.name, version


SCHEMA_WRITERS = Table(
    "schema_writers",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False, comment="1: there is one row"),
    Column("oldest", String(32), nullable=False, comment="the oldest schema whose builds can write this one"),
)
"""Builds that can still write a catalog whose schema is newer than theirs: one row, filled by migrations.

So builds of two ages may run side by side, and the newer one may migrate first. A migration that an earlier
build can live with leaves the row as it is; any other sets it to its own revision, and earlier builds are
refused."""


def oldest_writer(connection: Connection) -> str | None:
    """A revision; None for a schema that says nothing of it."""
    if not inspect(connection).has_table(SCHEMA_WRITERS.name):
        return None
    return connection.execute(select(SCHEMA_WRITERS.c.oldest)).scalar_one_or_none()


def raise_oldest_writer(connection: Connection, schema: str) -> None:
    """Builds whose own schema is earlier than ``schema`` are refused from now on."""
    raised = update(SCHEMA_WRITERS).where(SCHEMA_WRITERS.c.oldest < schema).values(oldest=schema)
    connection.execute(raised)
