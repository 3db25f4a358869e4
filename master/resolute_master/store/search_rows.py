"""The filter language over entities in memory, as `sql.searches` carries it out in a database."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.store.base import Page
from resolute_master.store.listing import page_bounds
from resolute_master.store.metric_chunks import NUMBER, Chunk, number_of, whole
from resolute_master.store.search_filter import (
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
    flat_hyperparameters,
    names_of_states,
)

_ORDERING: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.GREATER: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """An experiment, or one of its trials, with what its columns are worked out from."""

    experiment: Experiment
    trial: Trial | None
    """None where experiments are searched."""
    trials: Sequence[Trial]
    """Whose hyperparameters are meant."""
    checkpoints: Sequence[Checkpoint]
    job: Job | None
    chunks: Mapping[str, Sequence[Chunk]]
    """By group, of the best trial or of this one."""

    @property
    def id(self) -> int:
        return self.experiment.id if self.trial is None else self.trial.id


def searched(rows: Sequence[SearchRow], query: SearchQuery) -> Page[SearchRow]:
    """The page of those that fit, in the query's order; `rows` come by id."""
    found = [
        row
        for row in rows
        if query.project_id in (None, row.experiment.project_id)
        and query.archived in (None, row.experiment.archived)
        and fits(row, query.filter, query)
    ]
    for sort in reversed(query.sort):
        keys = {row.id: sort_values(row, sort.column, query, descending=sort.descending) for row in found}
        for place in reversed(range(len(next(iter(keys.values()), ())))):
            missing = [row for row in found if keys[row.id][place] is None]
            found = [row for row in found if keys[row.id][place] is not None]
            found.sort(key=lambda row, keys=keys, place=place: keys[row.id][place], reverse=sort.descending)  # type: ignore[misc]
            found += missing
    first, after = page_bounds(query.offset, query.limit, len(found))
    return Page(rows=tuple(found[first:after]), offset=first, total=len(found))


def fits(row: SearchRow, node: Group | Comparison, query: SearchQuery) -> bool:
    """Whether the row matches the filter."""
    if isinstance(node, Group):
        parts = [fits(row, part, query) for part in node.parts]
        return (any if node.any else all)(parts) if parts else True
    values = _values(row, node.column, query)
    if isinstance(node.column, Hyperparameter):
        pairs = [number if isinstance(node.value, float) else text for number, text in values]
        if node.operator in (Operator.IS_EMPTY, Operator.NOT_EMPTY):
            return bool(pairs) is (node.operator is Operator.NOT_EMPTY)
        return _any_compared(pairs, node, negative=(Operator.NOT_CONTAINS,))
    if isinstance(node.column, Field) and node.column.kind is Kind.LABELS:
        if node.operator in (Operator.IS_EMPTY, Operator.NOT_EMPTY):
            return bool(values) is (node.operator is Operator.NOT_EMPTY)
        return _any_compared(values, node, negative=(Operator.NOT_CONTAINS, Operator.NOT_EQUAL))
    (value,) = values
    if isinstance(node.column, Field) and node.column.kind is Kind.STATE:
        return (value in names_of_states(str(node.value))) is (node.operator is Operator.EQUAL)
    return _compared(value, node.operator, node.value)


def _any_compared(values: Sequence[Any], node: Comparison, *, negative: Sequence[Operator]) -> bool:
    if node.operator not in negative:
        return any(_compared(value, node.operator, node.value) for value in values)
    positive = Operator.CONTAINS if node.operator is Operator.NOT_CONTAINS else Operator.EQUAL
    return not any(_compared(value, positive, node.value) for value in values)


def _compared(value: Any, asked: Operator, other: Any) -> bool:
    if asked in (Operator.IS_EMPTY, Operator.NOT_EMPTY):
        return (value is None) is (asked is Operator.IS_EMPTY)
    if asked is Operator.NOT_CONTAINS:
        return value is None or other.lower() not in value.lower()
    if value is None:
        return False
    if asked is Operator.CONTAINS:
        return other.lower() in value.lower()
    return _ORDERING[asked](value, other)


def sort_values(row: SearchRow, column: Column, query: SearchQuery, *, descending: bool) -> tuple[Any, ...]:
    """What the row is sorted by: one value, or of a hyperparameter its number and its text."""
    values = _values(row, column, query)
    pick = max if descending else min
    if isinstance(column, Hyperparameter):
        numbers = [number for number, _ in values if number is not None]
        return pick(numbers, default=None), pick((text for _, text in values), default=None)
    if isinstance(column, Field) and column.kind is Kind.LABELS:
        return (min(values, default=None),)
    if isinstance(column, Field) and column.kind is Kind.STATE:
        return ([state.value for state in ExperimentState].index(values[0]),)
    return (values[0],)


def _values(row: SearchRow, column: Column, query: SearchQuery) -> Sequence[Any]:
    if isinstance(column, Hyperparameter):
        found = (flat_hyperparameters(trial.hparams).get(column.name) for trial in row.trials)
        return [value for value in found if value is not None]
    if isinstance(column, Metric):
        return [_metric(whole(row.chunks.get(column.group, ())), column)]
    if column.kind is Kind.LABELS:
        return row.experiment.labels
    return [_FIELDS[column.name](row, query)]


def _metric(chunk: Chunk | None, column: Metric) -> float | None:
    one = None if chunk is None else chunk.names.get(column.name)
    if one is None:
        return None
    if column.statistic is Statistic.LAST:
        found = number_of(one.last)
    elif one.type != NUMBER:
        found = None
    else:
        found = {Statistic.MIN: one.low, Statistic.MAX: one.high, Statistic.MEAN: one.total / one.count}[
            column.statistic
        ]
    return found if found is not None and abs(found) < float("inf") else None


def _duration(row: SearchRow, _: SearchQuery) -> int | None:
    of = row.trial or row.experiment
    return None if of.ended_at is None else int((of.ended_at - of.started_at).total_seconds())


def _best(row: SearchRow, _: SearchQuery) -> float | None:
    if row.trial is None:
        value = row.experiment.best_validation
    else:
        value = row.trial.best_validation.metric if row.trial.best_validation else None
    return value if value is not None and value == value else None


def _kept(row: SearchRow) -> list[Checkpoint]:
    return [each for each in row.checkpoints if each.state is not CheckpointState.DELETED]


_FIELDS: Mapping[str, Callable[[SearchRow, SearchQuery], Any]] = {
    "id": lambda row, _: row.id,
    "experimentId": lambda row, _: row.experiment.id,
    "name": lambda row, _: row.experiment.name,
    "experimentName": lambda row, _: row.experiment.name,
    "description": lambda row, _: row.experiment.description,
    "experimentDescription": lambda row, _: row.experiment.description,
    "forkedFrom": lambda row, _: row.experiment.parent_id,
    "startTime": lambda row, _: (row.trial or row.experiment).started_at,
    "endTime": lambda row, _: (row.trial or row.experiment).ended_at,
    "duration": _duration,
    "state": lambda row, _: (row.trial or row.experiment).state.value,
    "progress": lambda row, _: row.experiment.progress,
    "experimentProgress": lambda row, _: row.experiment.progress,
    "user": lambda row, query: query.usernames.get(row.experiment.owner),
    "resourcePool": lambda row, _: None if row.job is None else row.job.pool,
    "searcherType": lambda row, _: row.experiment.config["searcher"].get("name"),
    "searcherMetric": lambda row, _: row.experiment.config["searcher"].get("metric"),
    "searcherMetricsVal": _best,
    "numTrials": lambda row, _: len(row.trials),
    "checkpointCount": lambda row, _: len(_kept(row)),
    "checkpointSize": lambda row, _: sum(each.size for each in _kept(row)),
    "externalExperimentId": lambda row, _: row.experiment.external_id,
    "externalRunId": lambda row, _: None if row.trial is None else row.trial.external_id,
}
