"""Which pool an allocation is of, to read the newest ends of one pool among those of all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
OF_BODY = {"sqlite": "json_extract(body, '$.pool')", "postgresql": "body::json ->> 'pool'"}
"""The field of the rows' own JSON."""


def upgrade() -> None:
    op.add_column("allocations", sa.Column("pool", NAME))
    # By the database itself: there may be millions of rows, and a body is large.
    from_body = OF_BODY[op.get_bind().dialect.name]
    op.execute(sa.update(sa.table("allocations", sa.column("pool"))).values(pool=sa.literal_column(from_body)))
    op.create_index("ix_allocations_pool_ended_at", "allocations", ["pool", "ended_at"])
