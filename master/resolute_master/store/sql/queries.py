"""Pages and look-ups of what the engine has stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, case, func, select
from sqlalchemy.sql.roles import ExpressionElementRole

from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, Decision, EntityKey
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, JobId, PoolName, TaskId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.event_loop import yielding
from resolute_master.store.base import (
    CheckpointQuery,
    ExperimentNumbers,
    ExperimentQuery,
    Page,
    ProjectNumbers,
    TrialQuery,
)
from resolute_master.store.encoding import decode
from resolute_master.store.listing import EXPERIMENT_SORTS, TRIAL_SORTS, check_sort, page_bounds
from resolute_master.store.sql import dialect, tables

Noun = TypeVar("Noun", Experiment, Trial, Checkpoint, Allocation, Instance, Job)
Body = bytes | str
"""An entity as it is stored: SQLite gives text, PostgreSQL bytes."""

IDS_AT_ONCE = 1000
"""Ids looked up by one statement; databases limit how many values one may carry."""

NOT_DELETED = tables.checkpoints.c.state != CheckpointState.DELETED.value


def one(connection: Connection, type_: type[Noun], key: EntityKey) -> Noun | None:
    """The entity with that key, or None."""
    kind = KIND_OF[type_]
    statement = select(tables.TABLES[kind].c.body).where(tables.key_column(kind) == key)
    body = connection.execute(statement).scalar_one_or_none()
    return None if body is None else decode(type_, body)


def search_rows(connection: Connection, id_: ExperimentId) -> tuple[SearchTrial, ...]:
    """By number."""
    rows = tables.search_trials.c
    bodies = connection.execute(select(rows.body).where(rows.search == id_)).scalars()
    return tuple(sorted((decode(SearchTrial, body) for body in bodies), key=lambda row: row.number))


def page_of(
    connection: Connection, found: Select[Any], order: Sequence[Any], offset: int, limit: int | None
) -> Page[Body]:
    """`found` selects bodies; it is counted first, in the same transaction. They are left as they are, for the thread of a
    database, where all other statements wait, to be blocked no longer than necessary."""
    counted = found.with_only_columns(func.count(), maintain_column_froms=True)
    total: int = connection.execute(counted).scalar_one()
    first, after = page_bounds(offset, limit, total)
    if first == after:
        return Page(rows=(), offset=first, total=total)
    bodies = connection.execute(found.order_by(*order).offset(first).limit(after - first)).scalars()
    return Page(rows=tuple(bodies), offset=first, total=total)


def decoded(type_: type[Noun], page: Page[Body]) -> Page[Noun]:
    """Decodes a page of bodies. Callers use a separate thread for a long page."""
    rows = tuple(decode(type_, body) for body in yielding(page.rows))
    return Page(rows=rows, offset=page.offset, total=page.total)


def _order(column: Any, tie: ColumnElement[Any], descending: bool) -> tuple[Any, ...]:
    """Rows without the value last in both directions, ties by id."""
    return ((column.desc() if descending else column.asc()).nulls_last(), tie)


def state_order(column: ColumnElement[str]) -> ColumnElement[int]:
    """States in the order in which they are declared, not that of their spelling."""
    return case({state.value: index for index, state in enumerate(ExperimentState)}, value=column)


# ------------------------------------------------------------------------------------------------------- experiments


def page_experiments(connection: Connection, query: ExperimentQuery) -> Page[Body]:
    """Bodies of experiments. Raises `InvalidInput` for an unknown `sort_by`."""
    check_sort(query.sort_by, EXPERIMENT_SORTS)
    column = tables.experiments.c
    found = select(column.body).where(*_experiment_filters(query))
    order = _order(_experiment_sorts()[query.sort_by], column.id, query.descending)
    return page_of(connection, found, order, query.offset, query.limit)


def _experiment_filters(query: ExperimentQuery) -> list[ColumnElement[bool]]:
    column = tables.experiments.c
    filters: list[ColumnElement[bool]] = []
    if query.archived is not None:
        filters.append(column.archived.is_(query.archived))
    if query.states:
        filters.append(column.state.in_([state.value for state in query.states]))
    if query.owners:
        filters.append(column.owner.in_(query.owners))
    if query.labels:
        labels = tables.experiment_labels.c
        filters.append(column.id.in_(select(labels.experiment_id).where(labels.label.in_(query.labels))))
    if query.name:
        filters.append(dialect.contains(column.name, query.name))
    if query.description:
        filters.append(dialect.contains(column.description, query.description))
    if query.project_id is not None:
        filters.append(column.project_id == query.project_id)
    if query.not_in_workspace is not None:
        filters.append(column.workspace_id != query.not_in_workspace)
    if query.ids:
        filters.append(column.id.in_(query.ids))
    if query.exclude_ids:
        filters.append(column.id.not_in(query.exclude_ids))
    return filters


def _experiment_sorts() -> Mapping[str, ExpressionElementRole[Any]]:
    column, trials, checkpoints, jobs = tables.experiments.c, tables.trials.c, tables.checkpoints.c, tables.jobs.c
    of_experiment = (checkpoints.experiment_id == column.id, NOT_DELETED)
    return {
        "id": column.id,
        "name": column.name,
        "description": column.description,
        "start_time": column.started_at,
        "end_time": column.ended_at,
        "state": state_order(column.state),
        "progress": column.progress,
        "user": column.owner,
        "num_trials": select(func.count()).where(trials.experiment_id == column.id).scalar_subquery(),
        "resource_pool": select(func.max(jobs.pool)).where(jobs.experiment_id == column.id).scalar_subquery(),
        "project_id": column.project_id,
        "workspace_id": column.workspace_id,
        "forked_from": column.parent_id,
        "checkpoint_count": select(func.count()).where(*of_experiment).scalar_subquery(),
        "checkpoint_size": select(func.coalesce(func.sum(checkpoints.size), 0)).where(*of_experiment).scalar_subquery(),
        "searcher_metric_val": column.best_validation,
    }


def experiment_numbers(connection: Connection, ids: Sequence[ExperimentId]) -> dict[ExperimentId, ExperimentNumbers]:
    """For each of `ids`, also those without any."""
    numbers: dict[ExperimentId, ExperimentNumbers] = {}
    trials, checkpoints = tables.trials.c, tables.checkpoints.c
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        counted = connection.execute(
            select(trials.experiment_id, func.count())
            .where(trials.experiment_id.in_(some))
            .group_by(trials.experiment_id)
        )
        trial_counts: dict[int, int] = {row[0]: row[1] for row in counted}
        summed = connection.execute(
            select(checkpoints.experiment_id, func.count(), func.sum(checkpoints.size))
            .where(checkpoints.experiment_id.in_(some), NOT_DELETED)
            .group_by(checkpoints.experiment_id)
        )
        sums: dict[int, tuple[int, int]] = {id_: (count, int(size)) for id_, count, size in summed}
        for id_ in some:
            count, size = sums.get(id_, (0, 0))
            numbers[id_] = ExperimentNumbers(trials=trial_counts.get(id_, 0), checkpoints=count, checkpoint_bytes=size)
    return numbers


def trials_of_projects(ids: Sequence[int]) -> Select[Any, int]:
    """How many trials each project has, of those that have one."""
    column = tables.experiments.c
    found = select(column.project_id, func.count()).join(tables.trials, tables.trials.c.experiment_id == column.id)
    return found.where(column.project_id.in_(ids)).group_by(column.project_id)


_GONE = [state.value for state in ExperimentState if state.gone]


def project_numbers(connection: Connection, ids: Sequence[int]) -> dict[int, ProjectNumbers]:
    """For each of `ids`. The database counts in the order of an index, which has the state: a comparison of the state of each row
    takes PostgreSQL three times as long."""
    column = tables.experiments.c
    found: dict[int, ProjectNumbers] = {}
    for some in dialect.batches(ids):
        counted = connection.execute(
            select(column.project_id, column.state, func.count(), func.max(column.started_at))
            .where(column.project_id.in_(some))
            .group_by(column.project_id, column.state)
        )
        by_project: dict[int, list[tuple[str, int, datetime]]] = defaultdict(list)
        for project, state, count, last in counted:
            by_project[project].append((state, count, last))
        of_runs: dict[int, int] = {row[0]: row[1] for row in connection.execute(trials_of_projects(some))}
        for project in some:
            states = by_project[project]
            found[project] = ProjectNumbers(
                experiments=sum(count for _, count, _ in states),
                active=sum(count for state, count, _ in states if state not in _GONE),
                trials=of_runs.get(project, 0),
                last_started_at=max((last for _, _, last in states), default=None),
            )
    return found


# ------------------------------------------------------------------------------------------- trials and checkpoints


def page_trials(connection: Connection, query: TrialQuery) -> Page[Body]:
    """Bodies of trials. Raises `InvalidInput` for an unknown `sort_by`."""
    check_sort(query.sort_by, TRIAL_SORTS)
    column = tables.trials.c
    found = select(column.body).where(column.experiment_id == query.experiment_id)
    if query.states:
        found = found.where(column.state.in_([state.value for state in query.states]))
    order = _order(_trial_sorts()[query.sort_by], column.id, query.descending)
    return page_of(connection, found, order, query.offset, query.limit)


def _trial_sorts() -> Mapping[str, ExpressionElementRole[Any]]:
    column, checkpoints = tables.trials.c, tables.checkpoints.c
    sizes = select(func.coalesce(func.sum(checkpoints.size), 0)).where(checkpoints.trial_id == column.id, NOT_DELETED)
    return {
        "id": column.id,
        "start_time": column.started_at,
        "end_time": column.ended_at,
        "state": state_order(column.state),
        "best_validation_metric": column.best_validation,
        "latest_validation_metric": column.latest_validation,
        "batches_processed": column.steps_completed,
        "duration": column.ended_at - column.started_at,
        "restarts": column.restarts,
        "checkpoint_size": sizes.scalar_subquery(),
    }


def checkpoints(connection: Connection, query: CheckpointQuery) -> tuple[Checkpoint, ...]:
    """By trial id, then steps, then uuid."""
    column = tables.checkpoints.c
    found = select(column.body)
    if query.experiment_id is not None:
        found = found.where(column.experiment_id == query.experiment_id)
    if query.trial_id is not None:
        found = found.where(column.trial_id == query.trial_id)
    if query.trial_ids is not None:
        found = found.where(column.trial_id.in_(query.trial_ids))
    if query.states:
        found = found.where(column.state.in_([state.value for state in query.states]))
    else:
        found = found.where(NOT_DELETED)
    if query.most is not None:
        last = (column.steps_completed.desc(), column.trial_id, column.uuid)
        most = _decoded(connection, Checkpoint, found.order_by(*last).limit(query.most))
        return tuple(sorted(most, key=lambda each: (each.trial_id, each.steps_completed, each.uuid)))
    return _decoded(connection, Checkpoint, found.order_by(column.trial_id, column.steps_completed, column.uuid))


# ------------------------------------------------------------------------------ allocations, instances, decisions


def allocations_of_task(connection: Connection, task: TaskId) -> tuple[Allocation, ...]:
    """The first attempt first."""
    column = tables.allocations.c
    found = select(column.body).where(column.task_id == task).order_by(column.attempt, column.id)
    return _decoded(connection, Allocation, found)


def attempts_of_tasks(connection: Connection, tasks: Sequence[TaskId]) -> tuple[Allocation, ...]:
    """By id."""
    column = tables.allocations.c
    found = [
        allocation
        for some in dialect.batches(tasks)
        for allocation in _decoded(connection, Allocation, select(column.body).where(column.task_id.in_(some)))
    ]
    return tuple(sorted(found, key=lambda allocation: allocation.id))


def allocations_on_agents(
    connection: Connection, agents: Sequence[str], *, since: datetime | None, until: datetime | None
) -> tuple[Allocation, ...]:
    """By assignment time."""
    column, held = tables.allocations.c, tables.allocation_agents.c
    found = select(column.body).where(column.id.in_(select(held.allocation_id).where(held.agent_id.in_(agents))))
    if since is not None:
        found = found.where(column.ended_at.is_(None) | (column.ended_at > since))
    if until is not None:
        found = found.where(column.assigned_at < until)
    return _decoded(connection, Allocation, found.order_by(column.assigned_at.nulls_last(), column.id))


def ended_allocations(connection: Connection, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
    """The newest end first."""
    column = tables.allocations.c
    of_pool = select(column.body).where(column.pool == pool)
    over = of_pool.where(column.ended, column.assigned_at.is_not(None), column.ended_at.is_not(None))
    return _decoded(connection, Allocation, over.order_by(column.ended_at.desc(), column.id.desc()).limit(limit))


def instances(connection: Connection, *, since: datetime | None, until: datetime | None) -> tuple[Instance, ...]:
    """By request time."""
    column = tables.instances.c
    found = select(column.body)
    if since is not None:
        found = found.where((column.paid_until > since) | (column.paid_until.is_(None) & ~column.over))
    if until is not None:
        found = found.where(column.requested_at < until)
    return _decoded(connection, Instance, found.order_by(column.requested_at, column.id))


def jobs(connection: Connection, ids: Sequence[JobId]) -> tuple[Job, ...]:
    """By id."""
    column = tables.jobs.c
    found = (
        select(column.body).where(column.id.in_(some)).order_by(column.id) for some in dialect.batches(sorted(ids))
    )
    return tuple(job for statement in found for job in _decoded(connection, Job, statement))


def decisions(connection: Connection, limit: int) -> tuple[Decision, ...]:
    """The newest `limit`, oldest of them first."""
    if limit <= 0:
        return ()
    column = tables.decisions.c
    wanted = select(column.at, column.pool, column.kind, column.subject, column.reason)
    newest = [
        Decision(at=at, pool=pool, kind=kind, subject=subject, reason=reason)
        for at, pool, kind, subject, reason in connection.execute(wanted.order_by(column.id.desc()).limit(limit))
    ]
    return tuple(reversed(newest))


def _decoded(connection: Connection, type_: type[Noun], found: Select[Any]) -> tuple[Noun, ...]:
    return tuple(decode(type_, body) for body in connection.execute(found).scalars())
