"""The audit by catalog version: the history says who asked for a version and why."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_audit_log_version_after", "audit_log", ["version_after"])


def downgrade() -> None:
    op.drop_index("ix_audit_log_version_after", table_name="audit_log")
