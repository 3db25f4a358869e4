"""Three fields of bodies have the names that the documentation uses. A body without a value there reads as before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

AT_ONCE = 1_000


class Renamed(NamedTuple):
    table: str
    old: str
    new: str
    holding: str
    """How the JSON of a value begins; the default, which is left alone, begins in another way."""


RENAMED = (
    Renamed("accounts", "landing", "wind_down", "{"),
    Renamed("trials", "heard_at", "last_report_at", '"'),
    Renamed("search_trials", "verdict", "reason", '"'),
)


def upgrade() -> None:
    connection = op.get_bind()
    for each in RENAMED:
        rows = sa.table(each.table, sa.column("id"), sa.column("body"))
        statement = sa.update(rows).where(rows.c.id == sa.bindparam("one")).values(body=sa.bindparam("renamed"))
        for page in _pages(connection, rows, each):
            renamed = [{"one": id_, "renamed": _renamed(body, each)} for id_, body in page]
            connection.execute(statement, renamed)


def _pages(connection: sa.Connection, rows: sa.TableClause, each: Renamed) -> Iterator[Sequence[sa.Row[Any, Any]]]:
    """Rows by their ids, so that a table of any size fits in memory. Older migrations wrote a space after a colon."""
    spelled = (rows.c.body.like(f'%"{each.old}":{space}{each.holding}%') for space in ("", " "))
    holding = sa.select(rows.c.id, rows.c.body).where(sa.or_(*spelled))
    page = connection.execute(holding.order_by(rows.c.id).limit(AT_ONCE)).fetchall()
    while page:
        yield page
        page = connection.execute(holding.where(rows.c.id > page[-1].id).order_by(rows.c.id).limit(AT_ONCE)).fetchall()


def _renamed(body: str, each: Renamed) -> str:
    found = json.loads(body)
    if each.old in found:
        found[each.new] = found.pop(each.old)
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
