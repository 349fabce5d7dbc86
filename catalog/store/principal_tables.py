"""The tables of users, roles and grants, and of what users prove themselves with: tokens, sessions, links.

Unlike zones, users and grants have no history here: what was revoked must not be read again by anybody, and a
password's hash is kept no longer than it is valid. The audit says who changed what. Invariants: a row of
``users``, ``roles``, ``role_members`` or ``grants`` changes only in the transaction of a catalog version; no
table holds a secret, only what one is compared with; what has an owner belongs to the user that is there: it is
inserted in a transaction that holds the user's row, and goes in the one that deletes it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ColumnElement, Index, String, Table, Text, func, select

from catalog.core.principals import Principal
from catalog.store.tables import METADATA

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
