"""Workspaces, their projects, and the pools that are bound to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for table in ("workspaces", "projects"):
        op.create_table(
            table,
            sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
            sa.Column("body", TEXT, nullable=False),
            sa.PrimaryKeyConstraint("id"),
        )
    op.create_table(
        "pool_bindings",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
