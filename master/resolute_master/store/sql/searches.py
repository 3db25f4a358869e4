"""The filter language as SQL: what fits, in which order, and a page of it."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, exists, false, func, literal, or_, select, true

from resolute_master.store.base import Page
from resolute_master.store.result_ranges import ChunkRow
from resolute_master.store.search_filter import (
    PRESENCE,
    TEXTUAL,
    Column,
    Comparison,
    Field,
    Group,
    Hyperparameter,
    Kind,
    Metric,
    Operator,
    SearchQuery,
    Statistic,
    Table,
    Value,
    names_of_states,
)
from resolute_master.store.sql import dialect, tables
from resolute_master.store.sql.queries import NOT_DELETED, Body, page_of, state_order

_ORDERING: Mapping[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.GREATER: operator.gt,
    Operator.AT_LEAST: operator.ge,
}
_SECOND = 1_000_000
"""Moments are microseconds."""


def page_search(connection: Connection, query: SearchQuery, table: Table) -> Page[Body]:
    """Bodies of experiments or of trials."""
    return _Search(connection, query, table).page()


class _Search:
    def __init__(self, connection: Connection, query: SearchQuery, table: Table) -> None:
        self._connection = connection
        self._query = query
        self._table = table
        self._id = tables.experiments.c.id if table is Table.EXPERIMENTS else tables.trials.c.id
        self._trial: ColumnElement[Any] = (
            tables.experiments.c.best_trial_id if table is Table.EXPERIMENTS else tables.trials.c.id
        )
        """Whose metrics are meant."""
        self._fields = self._of_experiments() if table is Table.EXPERIMENTS else self._of_runs()

    def page(self) -> Page[Body]:
        experiment = tables.experiments.c
        if self._table is Table.EXPERIMENTS:
            found: Select[Any] = select(experiment.body)
        else:
            found = select(tables.trials.c.body).join(
                tables.experiments, experiment.id == tables.trials.c.experiment_id
            )
        if self._query.project_id is not None:
            found = found.where(experiment.project_id == self._query.project_id)
        if self._query.archived is not None:
            found = found.where(experiment.archived.is_(self._query.archived))
        found = found.where(self._fits(self._query.filter))
        order: list[Any] = []
        for sort in self._query.sort:
            for value in self._sorted_by(sort.column, descending=sort.descending):
                order.append((value.desc() if sort.descending else value.asc()).nulls_last())
        return page_of(self._connection, found, (*order, self._id), self._query.offset, self._query.limit)

    # -- the tree ----------------------------------------------------------------------------------------------

    def _fits(self, node: Group | Comparison) -> ColumnElement[bool]:
        if isinstance(node, Group):
            parts = [self._fits(part) for part in node.parts]
            if not parts:
                return true()
            return or_(*parts) if node.any else and_(*parts)
        if isinstance(node.column, Hyperparameter):
            return self._of_hyperparameter(node.column, node)
        if isinstance(node.column, Field) and node.column.kind is Kind.LABELS:
            return self._of_labels(node)
        if isinstance(node.column, Field) and node.column.kind is Kind.STATE:
            known = self._fields[node.column.name].in_(names_of_states(str(node.value)))
            return ~known if node.operator is Operator.NOT_EQUAL else known
        return _compared(self._value(node.column), node.operator, node.value)

    def _value(self, column: Field | Metric) -> ColumnElement[Any]:
        return self._metric(column) if isinstance(column, Metric) else self._fields[column.name]

    def _sorted_by(self, column: Column, *, descending: bool) -> list[ColumnElement[Any]]:
        if isinstance(column, Hyperparameter):
            row, pick = tables.hyperparameters.c, func.max if descending else func.min
            own = self._named(column)
            return [select(pick(value)).where(*own).scalar_subquery() for value in (row.number, row.text)]
        if isinstance(column, Field) and column.kind is Kind.LABELS:
            label = tables.experiment_labels.c
            first = select(func.min(label.label)).where(label.experiment_id == tables.experiments.c.id)
            return [first.scalar_subquery()]
        if isinstance(column, Field) and column.kind is Kind.STATE:
            return [state_order(self._fields[column.name])]
        return [self._value(column)]

    # -- hyperparameters and labels ----------------------------------------------------------------------------

    def _named(self, column: Hyperparameter) -> tuple[ColumnElement[bool], ...]:
        """Conditions for the hyperparameter `column` of the current row."""
        row = tables.hyperparameters.c
        of_row = row.experiment_id == self._id if self._table is Table.EXPERIMENTS else row.trial_id == self._id
        return of_row, row.name == column.name

    def _of_hyperparameter(self, column: Hyperparameter, node: Comparison) -> ColumnElement[bool]:
        """An experiment fits when one of its trials does."""
        row = tables.hyperparameters.c
        key = row.experiment_id if self._table is Table.EXPERIMENTS else row.trial_id
        having = select(key).where(row.name == column.name)
        if node.operator in PRESENCE:
            known = self._id.in_(having)
            return known if node.operator is Operator.NOT_EMPTY else ~known
        value = row.number if isinstance(node.value, float) else row.text
        if node.operator is Operator.NOT_CONTAINS:
            return self._id.not_in(having.where(_compared(value, Operator.CONTAINS, node.value)))
        return self._id.in_(having.where(_compared(value, node.operator, node.value)))

    def _of_labels(self, node: Comparison) -> ColumnElement[bool]:
        label = tables.experiment_labels.c
        own = exists().where(label.experiment_id == tables.experiments.c.id)
        match node.operator:
            case Operator.IS_EMPTY:
                return ~own
            case Operator.NOT_EMPTY:
                return own
            case Operator.NOT_CONTAINS | Operator.NOT_EQUAL:
                positive = Operator.CONTAINS if node.operator is Operator.NOT_CONTAINS else Operator.EQUAL
                return ~own.where(_compared(label.label, positive, node.value))
            case _:
                return own.where(_compared(label.label, node.operator, node.value))

    # -- metrics -----------------------------------------------------------------------------------------------

    def _metric(self, column: Metric) -> ColumnElement[Any]:
        """The value of a metric from the trial's chunks (`store.metric_chunks`). The positions in a name's list are those of its
        text."""
        chunk = tables.metric_chunks.c
        own = (chunk.trial_id == self._trial, chunk.metric_group == column.group)

        def at(place: int) -> ColumnElement[float]:
            return dialect.json_number_at(self._connection, chunk.body, (column.name, place))

        match column.statistic:
            case Statistic.MIN:
                found = select(func.min(at(3))).where(*own)
            case Statistic.MAX:
                found = select(func.max(at(5))).where(*own)
            case Statistic.MEAN:
                found = select(func.sum(at(7)) / func.nullif(func.sum(at(2)), 0)).where(*own)
            case Statistic.LAST:
                found = select(at(1)).where(*own).order_by(chunk.first_step.desc()).limit(1)
        return found.correlate(tables.experiments, tables.trials).scalar_subquery()

    # -- columns of their own ----------------------------------------------------------------------------------

    def _of_experiments(self) -> Mapping[str, ColumnElement[Any]]:
        column, checkpoint, trial = tables.experiments.c, tables.checkpoints.c, tables.trials.c
        of_it = (checkpoint.experiment_id == column.id, NOT_DELETED)
        return {
            **self._shared(),
            "id": column.id,
            "name": column.name,
            "description": column.description,
            "forkedFrom": column.parent_id,
            "startTime": column.started_at,
            "endTime": column.ended_at,
            "duration": (column.ended_at - column.started_at) / _SECOND,
            "state": column.state,
            "progress": column.progress,
            "searcherMetricsVal": column.best_validation,
            "numTrials": select(func.count()).where(trial.experiment_id == column.id).scalar_subquery(),
            "checkpointCount": select(func.count()).where(*of_it).scalar_subquery(),
            "checkpointSize": select(func.coalesce(func.sum(checkpoint.size), 0)).where(*of_it).scalar_subquery(),
        }

    def _of_runs(self) -> Mapping[str, ColumnElement[Any]]:
        column, checkpoint, experiment = tables.trials.c, tables.checkpoints.c, tables.experiments.c
        of_it = (checkpoint.trial_id == column.id, NOT_DELETED)
        return {
            **self._shared(),
            "id": column.id,
            "experimentId": experiment.id,
            "experimentName": experiment.name,
            "experimentDescription": experiment.description,
            "experimentProgress": experiment.progress,
            "startTime": column.started_at,
            "endTime": column.ended_at,
            "duration": (column.ended_at - column.started_at) / _SECOND,
            "state": column.state,
            "searcherMetricsVal": column.best_validation,
            "checkpointCount": select(func.count()).where(*of_it).scalar_subquery(),
            "checkpointSize": select(func.coalesce(func.sum(checkpoint.size), 0)).where(*of_it).scalar_subquery(),
            "externalRunId": dialect.json_text_at(self._connection, column.body, ("external_id",)),
        }

    def _shared(self) -> Mapping[str, ColumnElement[Any]]:
        experiment, job = tables.experiments.c, tables.jobs.c

        def told(*path: str) -> ColumnElement[str]:
            return dialect.json_text_at(self._connection, experiment.body, path)

        names = self._query.usernames
        return {
            "user": case(dict(names), value=experiment.owner, else_=None) if names else literal(None, tables.NameText),
            "resourcePool": select(func.max(job.pool)).where(job.experiment_id == experiment.id).scalar_subquery(),
            "searcherType": told("config", "searcher", "name"),
            "searcherMetric": told("config", "searcher", "metric"),
            "externalExperimentId": told("external_id"),
        }


def _compared(column: ColumnElement[Any], asked: Operator, value: Value) -> ColumnElement[bool]:
    if asked is Operator.IS_EMPTY:
        return column.is_(None)
    if asked is Operator.NOT_EMPTY:
        return column.is_not(None)
    if asked in TEXTUAL and asked not in _ORDERING:
        held = dialect.contains(column, str(value))
        return held if asked is Operator.CONTAINS else ~func.coalesce(held, false())
    moment = literal(value, tables.Moment) if isinstance(value, datetime) else value
    compared: ColumnElement[bool] = _ORDERING[asked](column, moment)
    return compared


def bodies_by_id(connection: Connection, kind: str, ids: Sequence[int]) -> list[Body]:
    """Bodies of entities of one kind, by id."""
    key, found = tables.key_column(kind), list[Body]()
    for some in dialect.batches(sorted(set(ids))):
        statement = select(tables.TABLES[kind].c.body).where(key.in_(some)).order_by(key)
        found += connection.execute(statement).scalars()
    return found


def hyperparameter_names(connection: Connection, project_id: int | None) -> dict[str, bool]:
    """By name whether all values are numbers."""
    row, experiment = tables.hyperparameters.c, tables.experiments.c
    found = select(row.name, func.count(), func.count(row.number)).group_by(row.name).order_by(row.name)
    if project_id is not None:
        found = found.join(tables.experiments, experiment.id == row.experiment_id)
        found = found.where(experiment.project_id == project_id)
    return {name: every == numbers for name, every, numbers in connection.execute(found)}


def metric_bodies(connection: Connection, project_id: int | None) -> list[tuple[str, str]]:
    """Group and text of the newest chunk of each trial and group: what it reports now."""
    chunk, later = tables.metric_chunks.c, tables.metric_chunks.alias("later")
    newer = exists().where(
        later.c.trial_id == chunk.trial_id,
        later.c.metric_group == chunk.metric_group,
        later.c.first_step > chunk.first_step,
    )
    found = select(chunk.metric_group, chunk.body).where(~newer)
    if project_id is not None:
        trial, experiment = tables.trials.c, tables.experiments.c
        found = found.join(tables.trials, trial.id == chunk.trial_id)
        found = found.join(tables.experiments, experiment.id == trial.experiment_id)
        found = found.where(experiment.project_id == project_id)
    return [(group, body) for group, body in connection.execute(found)]


def best_results(connection: Connection, project_id: int) -> tuple[list[ChunkRow], tuple[float, float] | None]:
    """Chunks of the best trial of each experiment in the project, in the order of `ranges_of`, and the range of their searcher's
    metric; None for the range if no experiment has a finite value."""
    experiment, chunk = tables.experiments.c, tables.metric_chunks.c
    value, largest = experiment.best_validation, sys.float_info.max
    ends = select(func.min(value), func.max(value)).where(
        experiment.project_id == project_id, value.between(-largest, largest)
    )
    low, high = connection.execute(ends).one()
    best = select(experiment.best_trial_id).where(
        experiment.project_id == project_id, experiment.best_trial_id.is_not(None)
    )
    found = select(chunk.trial_id, chunk.metric_group, chunk.body).where(chunk.trial_id.in_(best))
    ordered = connection.execute(found.order_by(chunk.trial_id, chunk.metric_group, chunk.first_step))
    rows: list[ChunkRow] = [(trial, group, body) for trial, group, body in ordered]
    return rows, None if low is None else (low, high)


def metadata_texts(connection: Connection, project_id: int, key: str) -> list[str]:
    """JSON texts of the metadata of runs of a project that have the key at the top."""
    trial, experiment = tables.trials.c, tables.experiments.c
    text = dialect.json_text_at(connection, trial.body, ("metadata",))
    found = select(text).join(tables.experiments, experiment.id == trial.experiment_id)
    having = dialect.json_text_at(connection, trial.body, ("metadata", key)).is_not(None)
    return list(connection.execute(found.where(experiment.project_id == project_id, having)).scalars())


def labels(connection: Connection, project_id: int | None) -> tuple[str, ...]:
    """The most frequent first."""
    label, experiment = tables.experiment_labels.c, tables.experiments.c
    found = select(label.label).group_by(label.label).order_by(func.count().desc(), label.label)
    if project_id is not None:
        found = found.join(tables.experiments, experiment.id == label.experiment_id)
        found = found.where(experiment.project_id == project_id)
    return tuple(connection.execute(found).scalars())
