"""The scope of the token that a logged statement was sent with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A build of an earlier schema writes none: then only who has no scope reads the statement."""
    column = sa.Column(
        "scope", sa.Text, nullable=False, server_default=sa.text("''"), comment="of the token; empty: none"
    )
    op.add_column("statement_log", column)


def downgrade() -> None:
    op.drop_column("statement_log", "scope")
