"""Which builds can still write a catalog whose schema is newer than theirs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A later migration that a build of an earlier schema can live with (tables, indexes, columns that may be
    empty) leaves the row as it is; any other sets it to its own revision."""
    table = op.create_table(
        "schema_writers",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False, comment="1: there is one row"),
        sa.Column(
            "oldest", sa.String(32), nullable=False, comment="the oldest schema whose builds can write this one"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_schema_writers"),
    )
    op.bulk_insert(table, [{"id": 1, "oldest": "0007"}])


def downgrade() -> None:
    op.drop_table("schema_writers")
