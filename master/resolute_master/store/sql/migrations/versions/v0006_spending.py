"""What was spent: accounts, and until when slots were held and machines were paid for, to look up one week among years."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", NAME, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for table, column in (("allocations", "ended_at"), ("instances", "paid_until")):
        op.add_column(table, sa.Column(column, sa.BigInteger()))
        _fill(table, column)
        op.create_index(f"ix_{table}_{column}", table, [column])


def _fill(table: str, column: str) -> None:
    """From the rows themselves, which hold it as a field of their JSON."""
    connection = op.get_bind()
    known = sa.table(table, sa.column("id"), sa.column("body"), sa.column(column))
    change = sa.update(known).where(known.c.id == sa.bindparam("key")).values({column: sa.bindparam("moment")})
    for rows in connection.execute(sa.select(known.c.id, known.c.body)).partitions(1000):
        found = [{"key": id_, "moment": _microseconds(json.loads(body).get(column))} for id_, body in rows]
        if told := [row for row in found if row["moment"] is not None]:
            connection.execute(change, told)


def _microseconds(text: str | None) -> int | None:
    return None if text is None else (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
