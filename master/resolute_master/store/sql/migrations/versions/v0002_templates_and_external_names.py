"""Templates, and the names that owners give to experiments which run elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for table in ("templates", "external_experiments"):
        op.create_table(
            table,
            sa.Column("id", NAME, nullable=False),
            sa.Column("body", TEXT, nullable=False),
            sa.PrimaryKeyConstraint("id"),
        )
