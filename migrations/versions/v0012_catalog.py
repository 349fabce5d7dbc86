"""The catalog as 0.2.0 left it: the first schema that was released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = None
branch_labels = None
depends_on = None

SEEN = ["SEE"]
CHANGED = ["SEE", "ALTER", "CREATE", "DROP", "OPERATE", "RECOVER"]
READY = {
    "viewer": {"SYSTEM": SEEN, "ALL ZONES": SEEN},
    "writer": {"SYSTEM": SEEN, "ALL ZONES": ["SEE", "READ", "WRITE"]},
    "operator": {"SYSTEM": ["SEE", "OPERATE", "RECOVER"], "ALL ZONES": CHANGED},
    "administrator": {"SYSTEM": ["ADMIN"]},
}
"""Role -> object -> privileges."""


def upgrade() -> None:
    _definitions()
    _statements()
    _stores()
    _audit()
    _principals()
    _proofs()


def _definitions() -> None:
    """Versions, zones and tables, and what is to be published of them."""
    op.create_table(
        "catalog_versions",
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column("statement", sa.Text, nullable=False),
        sa.Column("next_zone_id", sa.BigInteger, nullable=False),
        sa.Column("committed_at_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
        # Rows of before there were tables have the default.
        sa.Column("next_table_id", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column(
            "default_zone_id", sa.BigInteger, nullable=True, comment="NULL: there is no default zone yet"
        ),
        sa.PrimaryKeyConstraint("version", name="pk_catalog_versions"),
        sa.UniqueConstraint("statement_id", name="uq_catalog_versions_statement_id"),
    )
    op.create_table(
        "zone_versions",
        sa.Column("zone_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("partitions", sa.Integer, nullable=False),
        sa.Column("replicas", sa.Integer, nullable=False, comment="2147483647: ALL"),
        sa.Column("quorum_size", sa.Integer, nullable=True, comment="the explicit one; NULL: derived"),
        sa.Column("storage_profiles", sa.Text, nullable=False, comment="JSON list"),
        sa.Column("auto_scale_up", sa.Integer, nullable=False),
        sa.Column("auto_scale_down", sa.Integer, nullable=False),
        sa.Column("nodes_filter", sa.Text, nullable=False),
        sa.Column("consistency_mode", sa.String(64), nullable=False),
        sa.Column("algorithm", sa.String(64), nullable=False),
        sa.Column("strategy", sa.String(64), nullable=True, comment="of moves; NULL: the controllers' setting"),
        sa.Column(
            "loss_policy", sa.String(64), nullable=True, comment="of zones of store servers; NULL: the default"
        ),
        sa.PrimaryKeyConstraint("zone_id", "version", name="pk_zone_versions"),
        sa.ForeignKeyConstraint(["version"], ["catalog_versions.version"], name="fk_zone_versions_version"),
    )
    op.create_table(
        "outbox",
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("zone_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False, comment="an encoded ZoneIntent"),
        sa.Column("sent_at_us", sa.BigInteger, nullable=True, comment="NULL: not sent yet"),
        sa.PrimaryKeyConstraint("version", "zone_id", name="pk_outbox"),
        sa.ForeignKeyConstraint(["version"], ["catalog_versions.version"], name="fk_outbox_version"),
    )
    unsent = sa.text("sent_at_us IS NULL")
    op.create_index(
        "ix_outbox_unsent", "outbox", ["version", "zone_id"], sqlite_where=unsent, postgresql_where=unsent
    )
    op.create_table(
        "table_versions",
        sa.Column("table_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("zone_id", sa.BigInteger, nullable=False),
        sa.Column("storage_profile", sa.Text, nullable=False),
        sa.Column("columns", sa.Text, nullable=False, comment="JSON list of [name, type, nullable, default]"),
        sa.Column("primary_key", sa.Text, nullable=False, comment="JSON list of column names"),
        sa.Column("colocation", sa.Text, nullable=False, comment="JSON list of column names"),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_table_versions"),
        sa.ForeignKeyConstraint(["version"], ["catalog_versions.version"], name="fk_table_versions_version"),
    )


def _statements() -> None:
    """Statements that clients have sent, whose they are, and their results until they expire."""
    op.create_table(
        "statement_log",
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column("protocol", sa.String(16), nullable=False),
        sa.Column("idempotency_key", sa.String(300), nullable=True),
        sa.Column("sql_hash", sa.String(64), nullable=False, comment="SHA-256 of the text, hexadecimal"),
        sa.Column("sql", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False, comment="the server that runs it"),
        sa.Column(
            "lease_until_us",
            sa.BigInteger,
            nullable=False,
            comment="later than this the owner counts as dead",
        ),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
        sa.Column("finished_us", sa.BigInteger, nullable=True),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.Column(
            "head", sa.LargeBinary, nullable=True, comment="compressed JSON: the results without their rows"
        ),
        sa.Column("error", sa.Text, nullable=True, comment="JSON: a problem document"),
        sa.Column("warnings", sa.Text, nullable=False, comment="JSON list"),
        sa.Column("progress", sa.Text, nullable=True, comment="JSON: partitions done and total"),
        sa.Column("token", sa.Integer, nullable=False, comment="the newest page token that was answered"),
        sa.Column("token_answer", sa.Text, nullable=True, comment="JSON: what it was answered with"),
        sa.Column("principal_source", sa.String(255), nullable=False, server_default=sa.text("''")),
        sa.Column("principal_name", sa.String(128), nullable=False, server_default=sa.text("''")),
        sa.Column(
            "scope", sa.Text, nullable=False, server_default=sa.text("''"), comment="of the token; empty: none"
        ),
        sa.PrimaryKeyConstraint("statement_id", name="pk_statement_log"),
        sa.UniqueConstraint(
            "protocol",
            "principal_source",
            "principal_name",
            "idempotency_key",
            name="uq_statement_log_idempotency",
        ),
    )
    op.create_index("ix_statement_log_expires_us", "statement_log", ["expires_us"])
    op.create_table(
        "statement_pages",
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column(
            "result", sa.Integer, autoincrement=False, nullable=False, comment="number of the result, from 1"
        ),
        sa.Column("page", sa.Integer, autoincrement=False, nullable=False, comment="from 0"),
        sa.Column("body", sa.LargeBinary, nullable=False, comment="compressed JSON list of rows"),
        sa.PrimaryKeyConstraint("statement_id", "result", "page", name="pk_statement_pages"),
        sa.ForeignKeyConstraint(
            ["statement_id"], ["statement_log.statement_id"], name="fk_statement_pages_statement_id"
        ),
    )


def _stores() -> None:
    """Create the tables of the metastore's mark, and of builds that may write a newer catalog than theirs.

    A later migration that a build of an earlier schema can live with (tables, indexes, columns that may be
    empty) leaves the row of ``schema_writers`` as it is; any other sets it to its own revision."""
    op.create_table(
        "metastore_mark",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False, comment="1: there is one row"),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False, comment="where the nonce was written"),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metastore_mark"),
    )
    writers = op.create_table(
        "schema_writers",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False, comment="1: there is one row"),
        sa.Column(
            "oldest", sa.String(32), nullable=False, comment="the oldest schema whose builds can write this one"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_schema_writers"),
    )
    op.bulk_insert(writers, [{"id": 1, "oldest": "0007"}])


def _audit() -> None:
    """Create the audit log: changes, with their authors, times, reasons and origins."""
    op.create_table(
        "audit_log",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False, comment="zone, table, node or operation"),
        sa.Column("actor", sa.String(100), nullable=False, comment="empty: nobody gave a name"),
        sa.Column("verified", sa.Boolean, nullable=False, comment="whether a proxy has checked the name"),
        sa.Column("channel", sa.String(16), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False, comment="the statement, or the request as JSON"),
        sa.Column("version_before", sa.BigInteger, nullable=False, comment="of the catalog"),
        sa.Column("version_after", sa.BigInteger, nullable=False),
        sa.Column(
            "request_id",
            sa.String(64),
            nullable=False,
            server_default=sa.text("''"),
            comment="empty: of no request",
        ),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("ix_audit_log_subject", "audit_log", ["subject", "number"])
    op.create_index("ix_audit_log_version_after", "audit_log", ["version_after"])


def _principals() -> None:
    op.create_table(
        "users",
        sa.Column("source", sa.String(255), nullable=False, comment="local: of this catalog; else an issuer"),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column(
            "password_hash", sa.Text, nullable=True, comment="argon2id, encoded; NULL: no password logs in"
        ),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("created_version", sa.BigInteger, nullable=False, comment="of the catalog"),
        sa.Column(
            "changed_version", sa.BigInteger, nullable=False, comment="that changed password or state last"
        ),
        sa.PrimaryKeyConstraint("source", "name", name="pk_users"),
    )
    roles = op.create_table(
        "roles",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column(
            "is_ready", sa.Boolean, nullable=False, comment="made by the migration; nobody alters or drops it"
        ),
        sa.Column("created_version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_roles"),
    )
    op.create_table(
        "role_members",
        sa.Column("role", sa.String(128), nullable=False),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("role", "source", "name", name="pk_role_members"),
    )
    grants = op.create_table(
        "grants",
        sa.Column("source", sa.String(255), nullable=False, comment="of the grantee; role: a role"),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("object", sa.String(16), nullable=False, comment="SYSTEM, ALL ZONES or ZONE"),
        sa.Column(
            "zone_id", sa.BigInteger, autoincrement=False, nullable=False, comment="0: the object is no zone"
        ),
        sa.Column("privilege", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("source", "name", "object", "zone_id", "privilege", name="pk_grants"),
    )
    op.bulk_insert(roles, [{"name": name, "is_ready": True, "created_version": 0} for name in READY])
    op.bulk_insert(
        grants,
        [
            {"source": "role", "name": name, "object": target, "zone_id": 0, "privilege": privilege}
            for name, objects in READY.items()
            for target, privileges in objects.items()
            for privilege in privileges
        ],
    )


def _proofs() -> None:
    """Create the tables of users' proofs. No secret is kept, only a hash with which one is compared."""
    secret = "SHA-256, hexadecimal"
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(32), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False, comment=secret),
        sa.Column("owner_source", sa.String(255), nullable=False),
        sa.Column("owner_name", sa.String(128), nullable=False),
        sa.Column("scope", sa.Text, nullable=False, comment="JSON; empty: all that its owner may do"),
        sa.Column("created_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_us", sa.BigInteger, nullable=True, comment="NULL: not revoked"),
        sa.PrimaryKeyConstraint("token_id", name="pk_tokens"),
        sa.UniqueConstraint("secret_hash", name="uq_tokens_secret_hash"),
    )
    op.create_table(
        "sessions",
        sa.Column("secret_hash", sa.String(64), nullable=False, comment=secret),
        sa.Column("owner_source", sa.String(255), nullable=False),
        sa.Column("owner_name", sa.String(128), nullable=False),
        sa.Column("csrf", sa.String(64), nullable=False, comment=secret),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("used_us", sa.BigInteger, nullable=False, comment="last use"),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("secret_hash", name="pk_sessions"),
    )
    op.create_table(
        "one_time_links",
        sa.Column("secret_hash", sa.String(64), nullable=False, comment=secret),
        sa.Column("owner_source", sa.String(255), nullable=False),
        sa.Column("owner_name", sa.String(128), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.Column("used_us", sa.BigInteger, nullable=True, comment="NULL: not used yet"),
        sa.PrimaryKeyConstraint("secret_hash", name="pk_one_time_links"),
    )
    for name in ("tokens", "sessions", "one_time_links"):
        op.create_index(f"ix_{name}_owner", name, ["owner_source", "owner_name"])
