"""A rebalance strategy of a zone's own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    strategy = sa.Column(
        "strategy", sa.String(64), nullable=True, comment="of moves; NULL: the controllers' setting"
    )
    op.add_column("zone_versions", strategy)


def downgrade() -> None:
    with op.batch_alter_table("zone_versions") as table:
        table.drop_column("strategy")
