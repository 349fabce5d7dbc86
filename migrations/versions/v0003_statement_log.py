"""The statement log: statements that clients have sent, and their results until they expire."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "statement_log",
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column("protocol", sa.String(16), nullable=False),
        sa.Column("idempotency_key", sa.String(300), nullable=True),
        sa.Column("sql_hash", sa.String(64), nullable=False, comment="SHA-256 of the text, hexadecimal"),
        sa.Column("sql", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False, comment="the server that runs it"),
        sa.Column(
            "lease_until_us",
            sa.BigInteger,
            nullable=False,
            comment="later than this the owner counts as dead",
        ),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False, comment="microseconds since 1970, UTC"),
        sa.Column("finished_us", sa.BigInteger, nullable=True),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.Column(
            "head", sa.LargeBinary, nullable=True, comment="compressed JSON: the results without their rows"
        ),
        sa.Column("error", sa.Text, nullable=True, comment="JSON: a problem document"),
        sa.Column("warnings", sa.Text, nullable=False, comment="JSON list"),
        sa.Column("progress", sa.Text, nullable=True, comment="JSON: partitions done and total"),
        sa.Column("token", sa.Integer, nullable=False, comment="the newest page token that was answered"),
        sa.Column("token_answer", sa.Text, nullable=True, comment="JSON: what it was answered with"),
        sa.PrimaryKeyConstraint("statement_id", name="pk_statement_log"),
        sa.UniqueConstraint("protocol", "idempotency_key", name="uq_statement_log_idempotency"),
    )
    op.create_index("ix_statement_log_expires_us", "statement_log", ["expires_us"])
    op.create_table(
        "statement_pages",
        sa.Column("statement_id", sa.String(64), nullable=False),
        sa.Column(
            "result", sa.Integer, autoincrement=False, nullable=False, comment="number of the result, from 1"
        ),
        sa.Column("page", sa.Integer, autoincrement=False, nullable=False, comment="from 0"),
        sa.Column("body", sa.LargeBinary, nullable=False, comment="compressed JSON list of rows"),
        sa.PrimaryKeyConstraint("statement_id", "result", "page", name="pk_statement_pages"),
        sa.ForeignKeyConstraint(
            ["statement_id"], ["statement_log.statement_id"], name="fk_statement_pages_statement_id"
        ),
    )


def downgrade() -> None:
    op.drop_table("statement_pages")
    op.drop_table("statement_log")
