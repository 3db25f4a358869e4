"""What searches remember: one row of each search and one of each of its trials, out of one map in the experiment's row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TEXT = sa.Text()
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
WHOLE = 1_000_000
"""Progress was a fraction and is counted in millionths."""


def upgrade() -> None:
    op.create_table(
        "searches",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "search_trials",
        sa.Column("id", NAME, nullable=False),
        sa.Column("search", sa.BigInteger(), nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_search_trials_search", "search_trials", ["search"])
    _take_over()


def _take_over() -> None:
    connection = op.get_bind()
    experiments = sa.table("experiments", sa.column("id"), sa.column("body"))
    trials = sa.table("trials", sa.column("id"), sa.column("experiment_id"), sa.column("body"))
    searches = sa.table("searches", sa.column("id"), sa.column("body"))
    rows = sa.table("search_trials", sa.column("id"), sa.column("search"), sa.column("body"))
    for id_, body in connection.execute(sa.select(experiments.c.id, experiments.c.body)).fetchall():
        experiment = json.loads(body)
        state = experiment.get("searcher") or {}
        if not state:
            continue  # unmanaged
        known = sa.select(trials.c.body).where(trials.c.experiment_id == id_).order_by(trials.c.id)
        made = [_trial(id_, experiment, number, json.loads(each)) for number, each in _numbered(connection, known)]
        if made:
            connection.execute(
                sa.insert(rows), [{"id": each["id"], "search": id_, "body": json.dumps(each)} for each in made]
            )
        connection.execute(sa.insert(searches), [{"id": id_, "body": json.dumps(_search(id_, state, made))}])


def _numbered(connection: sa.Connection, statement: Any) -> list[tuple[int, str]]:
    return list(enumerate(connection.execute(statement).scalars()))


def _search(id_: int, state: Mapping[str, Any], made: list[dict[str, Any]]) -> dict[str, Any]:
    kept = {name: state[name] for name in ("requested", "failed", "canceled", "invalid", "generator", "over")}
    progress = sum(each["progress"] for each in made if each["open"])
    return {"id": id_, **kept, "open": len(state["open"]), "progress": progress}


def _trial(id_: int, experiment: Mapping[str, Any], number: int, trial: Mapping[str, Any]) -> dict[str, Any]:
    request = trial["request_id"]
    progress = experiment["searcher"]["open"].get(request)
    return {
        "id": f"{id_}.{request}",
        "search": id_,
        "request_id": request,
        "number": number,
        "open": progress is not None,
        "progress": round((progress or 0.0) * WHOLE),
        "length": _length(experiment["config"]["searcher"].get("max_length")),
    }


def _length(length: Any) -> int | None:
    return next(iter(length.values()), None) if isinstance(length, Mapping) else length
