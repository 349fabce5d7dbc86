"""The catalog: history of versions and of zones, and the outbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalog_versions",
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column("statement", sa.Text, nullable=False),
        sa.Column("next_zone_id", sa.BigInteger, nullable=False),
        sa.Column("committed_at_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
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


def downgrade() -> None:
    op.drop_table("outbox")
    op.drop_table("zone_versions")
    op.drop_table("catalog_versions")
