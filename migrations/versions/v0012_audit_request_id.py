"""The request that a recorded change came with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A build of an earlier schema writes none."""
    column = sa.Column(
        "request_id",
        sa.String(64),
        nullable=False,
        server_default=sa.text("''"),
        comment="empty: of no request",
    )
    op.add_column("audit_log", column)


def downgrade() -> None:
    op.drop_column("audit_log", "request_id")
