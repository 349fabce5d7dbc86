"""Tables: their history, the ids that were given, and the default zone of tables that name none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A server default, because rows that are there may not be rewritten: no table was ever made before them.
    op.add_column(
        "catalog_versions", sa.Column("next_table_id", sa.BigInteger, nullable=False, server_default="1")
    )
    op.add_column(
        "catalog_versions",
        sa.Column(
            "default_zone_id", sa.BigInteger, nullable=True, comment="NULL: there is no default zone yet"
        ),
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


def downgrade() -> None:
    op.drop_table("table_versions")
    op.drop_column("catalog_versions", "default_zone_id")
    op.drop_column("catalog_versions", "next_table_id")
