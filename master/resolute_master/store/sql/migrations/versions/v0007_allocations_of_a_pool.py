"""Which pool an allocation is of, to read the newest ends of one pool among those of all."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("allocations", sa.Column("pool", NAME))
    _fill()
    op.create_index("ix_allocations_pool_ended_at", "allocations", ["pool", "ended_at"])


def _fill() -> None:
    """From the rows themselves, which hold it as a field of their JSON."""
    connection = op.get_bind()
    known = sa.table("allocations", sa.column("id"), sa.column("body"), sa.column("pool"))
    change = sa.update(known).where(known.c.id == sa.bindparam("key")).values(pool=sa.bindparam("named"))
    for rows in connection.execute(sa.select(known.c.id, known.c.body)).partitions(1000):
        connection.execute(change, [{"key": id_, "named": json.loads(body)["pool"]} for id_, body in rows])
