"""The partition loss policy of a zone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    policy = sa.Column(
        "loss_policy", sa.String(64), nullable=True, comment="of zones of store servers; NULL: the default"
    )
    op.add_column("zone_versions", policy)


def downgrade() -> None:
    with op.batch_alter_table("zone_versions") as table:
        table.drop_column("loss_policy")
