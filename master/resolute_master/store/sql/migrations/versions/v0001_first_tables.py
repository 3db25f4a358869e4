"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.BigInteger()  # microseconds since 1970


def upgrade() -> None:
    _searches()
    _results()
    _machines()
    _people()
    _engine()
    _streams()


def _searches() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("owner", NUMBER, nullable=False),
        sa.Column("workspace_id", NUMBER, nullable=False),
        sa.Column("project_id", NUMBER, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("description", NAME, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("parent_id", NUMBER),
        sa.Column("best_validation", sa.Float()),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_experiments_state", "experiments", ["state"])
    op.create_table(
        "experiment_labels",
        sa.Column("experiment_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("label", NAME, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "label"),
    )
    op.create_table(
        "trials",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("experiment_id", NUMBER, nullable=False),
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("steps_completed", NUMBER, nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("best_validation", sa.Float()),
        sa.Column("latest_validation", sa.Float()),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_trials_experiment_id", "trials", ["experiment_id"])


def _results() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("uuid", NAME, nullable=False),
        sa.Column("experiment_id", NUMBER, nullable=False),
        sa.Column("trial_id", NUMBER, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("steps_completed", NUMBER, nullable=False),
        sa.Column("size", NUMBER, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_index("ix_checkpoints_experiment_id", "checkpoints", ["experiment_id"])
    op.create_index("ix_checkpoints_trial_id", "checkpoints", ["trial_id"])
    op.create_table(
        "jobs",
        sa.Column("id", NAME, nullable=False),
        sa.Column("experiment_id", NUMBER),
        sa.Column("pool", NAME, nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_jobs_experiment_id", "jobs", ["experiment_id"])


def _machines() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", NAME, nullable=False),
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("assigned_at", MOMENT),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_allocations_ended", "allocations", ["ended"])
    op.create_index("ix_allocations_task_id", "allocations", ["task_id"])
    op.create_table(
        "allocation_agents",
        sa.Column("agent_id", NAME, nullable=False),
        sa.Column("allocation_id", NAME, nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "allocation_id"),
    )
    op.create_table(
        "agents",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "instances",
        sa.Column("id", NAME, nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.Column("requested_at", MOMENT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_instances_over", "instances", ["over"])
    op.create_table(
        "beliefs",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _people() -> None:
    op.create_table(
        "users",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "counters",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "settings",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "contexts",
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )


def _engine() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "journal",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("entropy", TEXT, nullable=False),
        sa.Column("commands", sa.LargeBinary(), nullable=False),
        sa.Column("adopted", sa.LargeBinary(), nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_table(
        "snapshots",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )


def _streams() -> None:
    op.create_table(
        "metrics",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("trial_id", NUMBER, nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("metric_group", NAME, nullable=False),
        sa.Column("steps_completed", NUMBER),
        sa.Column("reported_at", MOMENT, nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("metrics", TEXT, nullable=False),
        sa.Column("batch_metrics", TEXT),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trial_id", "steps_completed", "run_id", "metric_group"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metrics_trial_id_reported_at", "metrics", ["trial_id", "reported_at"])
    op.create_table(
        "logs",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("allocation_id", TEXT),
        sa.Column("agent_id", TEXT, nullable=False),
        sa.Column("container_id", TEXT, nullable=False),
        sa.Column("rank", sa.Integer()),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("level", TEXT, nullable=False),
        sa.Column("stdtype", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("log", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_logs_task_id_id", "logs", ["task_id", "id"])
    op.create_table(
        "step_marks",
        sa.Column("allocation_id", NAME, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("steps_completed", NUMBER, nullable=False),
        sa.Column("checkpointing_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", "at"),
    )
