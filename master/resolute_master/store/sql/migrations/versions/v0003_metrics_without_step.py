"""Index by time only the metrics that are looked up by time: those without a step count.

The index over all of them had to be kept up with every report, and no query used it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_metrics_trial_id_reported_at", table_name="metrics")
    without_step = sa.text("steps_completed IS NULL")
    op.create_index(
        "ix_metrics_without_step",
        "metrics",
        ["trial_id", "reported_at"],
        sqlite_where=without_step,
        postgresql_where=without_step,
    )
