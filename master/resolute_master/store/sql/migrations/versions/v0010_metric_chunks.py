"""What metric reports come to, kept beside them; filled from the reports that are there. And projects are counted from an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from resolute_master.store.sql import chunk_rows

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "metric_chunks",
        sa.Column("trial_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("metric_group", NAME, nullable=False),
        sa.Column("first_step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("reports", sa.BigInteger(), nullable=False),
        sa.Column("preceding", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "metric_group", "first_step"),
    )
    op.create_index("ix_experiments_project_id_state_started_at", "experiments", ["project_id", "state", "started_at"])
    # By this version's own code: a version that keeps them otherwise makes them again.
    chunk_rows.fill(op.get_bind())
