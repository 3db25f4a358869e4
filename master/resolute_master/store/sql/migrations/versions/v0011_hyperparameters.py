"""The hyperparameters of trials, by which they are searched, and the best trial of each experiment as a column."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
AT_ONCE = 1_000
MAX_TEXT = 1_000


def upgrade() -> None:
    op.add_column("experiments", sa.Column("best_trial_id", sa.BigInteger()))
    op.create_table(
        "hyperparameters",
        sa.Column("trial_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Float()),
        sa.Column("text", NAME, nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "name"),
    )
    _fill()
    op.create_index(
        "ix_hyperparameters_name_number", "hyperparameters", ["name", "number", "experiment_id", "trial_id"]
    )
    op.create_index(
        "ix_hyperparameters_experiment_id_name_number", "hyperparameters", ["experiment_id", "name", "number"]
    )


def _fill() -> None:
    connection = op.get_bind()
    experiments = sa.table("experiments", sa.column("id"), sa.column("best_trial_id"), sa.column("body"))
    trials = sa.table("trials", sa.column("id"), sa.column("experiment_id"), sa.column("body"))
    rows = sa.table("hyperparameters", *map(sa.column, ("trial_id", "name", "experiment_id", "number", "text")))
    for page in _pages(connection, sa.select(experiments.c.id, experiments.c.body), experiments.c.id):
        best = [{"one": row.id, "best": json.loads(row.body).get("best_trial")} for row in page]
        statement = sa.update(experiments).where(experiments.c.id == sa.bindparam("one"))
        connection.execute(statement.values(best_trial_id=sa.bindparam("best", type_=sa.BigInteger())), best)
    for page in _pages(connection, sa.select(trials.c.id, trials.c.experiment_id, trials.c.body), trials.c.id):
        found = [
            {"trial_id": row.id, "name": name, "experiment_id": row.experiment_id, "number": number, "text": text}
            for row in page
            for name, (number, text) in _flat(json.loads(row.body)["hparams"]).items()
        ]
        if found:
            connection.execute(sa.insert(rows), found)


def _pages(connection: sa.Connection, statement: Any, key: Any) -> Iterator[list[Any]]:
    last = -1
    while page := connection.execute(statement.where(key > last).order_by(key).limit(AT_ONCE)).fetchall():
        yield list(page)
        last = page[-1].id


def _flat(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[float | None, str]]:
    found: dict[str, tuple[float | None, str]] = {}
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            number, text = _value(value)
            found[f"{prefix}{name}".replace("\x00", "\ufffd")] = number, text.replace("\x00", "\ufffd")
    return found


def _value(value: Any) -> tuple[float | None, str]:
    if isinstance(value, bool):
        return None, str(value).lower()
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        return (number if math.isfinite(number) else None), format(value, "g") if isinstance(value, float) else str(
            value
        )
    return None, value[:MAX_TEXT] if isinstance(value, str) else json.dumps(value)[:MAX_TEXT]
