"""The id of an experiment in the index of projects, so that the trials of a project are counted without reading an experiment."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

BEFORE = "ix_experiments_project_id_state_started_at"


def upgrade() -> None:
    op.create_index(f"{BEFORE}_id", "experiments", ["project_id", "state", "started_at", "id"])
    op.drop_index(BEFORE, "experiments")
