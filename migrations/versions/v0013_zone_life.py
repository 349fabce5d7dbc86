"""The token of each life of a zone's id."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A build of an earlier schema writes none."""
    life = sa.Column(
        "life", sa.String(64), nullable=True, comment="the statement that created it; NULL: not known"
    )
    op.add_column("zone_versions", life)
