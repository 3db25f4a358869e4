"""A deadline is a column of its own where there is one, and no column where there is none."""

from __future__ import annotations

from resolute_cli.experiment_tables import experiments_table
from support.cli_messages import an_experiment

MOMENT = "2027-01-31T18:00:00Z"


def test_the_deadline_is_shown_where_one_of_the_experiments_has_one() -> None:
    urgent = an_experiment(1, config={"resources": {"deadline": MOMENT}})
    columns, rows = experiments_table([urgent, an_experiment(2)])
    assert columns[-1] == "Deadline"
    assert [row[-1] for row in rows] == ["2027-01-31 18:00:00+0000", ""]


def test_without_deadlines_the_table_is_as_ever() -> None:
    columns, (row,) = experiments_table([an_experiment(1)])
    assert columns[-1] == "Labels"
    assert len(row) == len(columns)
