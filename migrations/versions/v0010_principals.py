"""Users, roles and grants; tokens, sessions and one-time links; and whose a statement of the log is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
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
    """A build of an earlier schema can live with this until there are users; the first one that is made sets
    the row of ``schema_writers``."""
    _principals()
    _proofs()
    with _pages_aside(), op.batch_alter_table("statement_log") as table:
        table.add_column(
            sa.Column("principal_source", sa.String(255), nullable=False, server_default=sa.text("''"))
        )
        table.add_column(
            sa.Column("principal_name", sa.String(128), nullable=False, server_default=sa.text("''"))
        )
        table.drop_constraint("uq_statement_log_idempotency", type_="unique")
        table.create_unique_constraint(
            "uq_statement_log_idempotency",
            ["protocol", "principal_source", "principal_name", "idempotency_key"],
        )


@contextmanager
def _pages_aside() -> Iterator[None]:
    """SQLite alters a table by making another one; the pages, which refer to its rows, are away meanwhile."""
    if op.get_bind().dialect.name != "sqlite":
        yield
        return
    op.execute("CREATE TEMPORARY TABLE pages_aside AS SELECT * FROM statement_pages")
    op.execute("DELETE FROM statement_pages")
    yield
    op.execute("INSERT INTO statement_pages SELECT * FROM pages_aside")
    op.execute("DROP TABLE pages_aside")


def downgrade() -> None:
    with _pages_aside(), op.batch_alter_table("statement_log") as table:
        table.drop_constraint("uq_statement_log_idempotency", type_="unique")
        table.create_unique_constraint("uq_statement_log_idempotency", ["protocol", "idempotency_key"])
        table.drop_column("principal_name")
        table.drop_column("principal_source")
    for name in ("one_time_links", "sessions", "tokens"):
        op.drop_index(f"ix_{name}_owner", table_name=name)
        op.drop_table(name)
    for name in ("grants", "role_members", "roles", "users"):
        op.drop_table(name)


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
    """What users prove themselves with. No secret is kept, only what one is compared with."""
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
