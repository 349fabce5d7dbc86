"""The audit: who changed what, when, why and from where."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("ix_audit_log_subject", "audit_log", ["subject", "number"])


def downgrade() -> None:
    op.drop_index("ix_audit_log_subject", table_name="audit_log")
    op.drop_table("audit_log")
