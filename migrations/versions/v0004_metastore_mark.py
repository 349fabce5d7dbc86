"""The highest revision of the metastore that was seen, and the epoch that both stores are in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metastore_mark",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False, comment="1: there is one row"),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False, comment="where the nonce was written"),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metastore_mark"),
    )


def downgrade() -> None:
    op.drop_table("metastore_mark")
