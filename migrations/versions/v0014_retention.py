"""Versions that are kept, and those that only carry rows which later versions refer to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A build of an earlier schema writes versions that are kept. It reads one that is not kept as if it were
    whole, where somebody asks it for a version that old."""
    kept: sa.Column[bool] = sa.Column(
        "kept", sa.Boolean(), nullable=False, server_default=sa.true(), comment="whether it can be read"
    )
    op.add_column("catalog_versions", kept)
    # Deleting a version looks for what refers to it.
    op.create_index("ix_zone_versions_version", "zone_versions", ["version"])
    op.create_index("ix_table_versions_version", "table_versions", ["version"])
