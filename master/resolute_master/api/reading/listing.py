"""Lists of checkpoints: read, ordered as asked, paged, and only the page is shown in full."""

from __future__ import annotations

import math
from collections.abc import Sequence

from resolute.errors import InvalidInput
from resolute.wire.rest.checkpoints import Checkpoint as WireCheckpoint
from resolute.wire.rest.checkpoints import GetCheckpointsQuery
from resolute.wire.rest.enums import CheckpointSortBy, OrderBy, WireCheckpointState
from resolute.wire.rest.paging import Pagination
from resolute.wire.states import CheckpointState
from resolute_master.api.context import ApiContext
from resolute_master.api.http.paging import page_of
from resolute_master.api.reading.finders import find_experiment, find_trial
from resolute_master.api.reading.showing import reports_at, validations_of
from resolute_master.api.render.checkpoints import checkpoint as render_checkpoint
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.lifecycle.checkpoints import metric_at
from resolute_master.store.base import CheckpointQuery

SortKey = tuple[float | int | str, ...]


async def page_of_checkpoints(
    api: ApiContext, stored: CheckpointQuery, asked: GetCheckpointsQuery
) -> tuple[tuple[WireCheckpoint, ...], Pagination]:
    """A page of checkpoints. `stored` selects them; `asked` has the order and the page. Checkpoints without files are included as
    DELETED, so that a user sees the end of a deletion. To exclude them, a query names the other states."""
    named = tuple(CheckpointState[s.name] for s in asked.states if s is not WireCheckpointState.UNSPECIFIED)
    states = named or tuple(CheckpointState)
    found = await api.store.checkpoints(
        CheckpointQuery(experiment_id=stored.experiment_id, trial_id=stored.trial_id, states=states)
    )
    ordered = await _ordered(api, found, asked)
    rows, pages = page_of(ordered, offset=asked.offset, limit=asked.limit)
    return await show_checkpoints(api, rows), pages


async def show_checkpoints(api: ApiContext, rows: Sequence[Checkpoint]) -> tuple[WireCheckpoint, ...]:
    """The checkpoints with their trials and experiments, each of which is read once."""
    experiments = {id_: await find_experiment(api, id_) for id_ in sorted({row.experiment_id for row in rows})}
    trials = {id_: await find_trial(api, id_) for id_ in sorted({row.trial_id for row in rows})}
    reports = await reports_at(api, rows)
    return tuple(
        render_checkpoint(
            row,
            experiment=experiments[row.experiment_id],
            trial=trials[row.trial_id],
            reports=reports[row.trial_id],
            secret_names=api.config.security.secrets.names,
        )
        for row in rows
    )


async def show_checkpoint(api: ApiContext, value: Checkpoint) -> WireCheckpoint:
    (shown,) = await show_checkpoints(api, [value])
    return shown


async def _ordered(api: ApiContext, found: Sequence[Checkpoint], asked: GetCheckpointsQuery) -> tuple[Checkpoint, ...]:
    if asked.sort_by_metric and asked.sort_by_attr is not CheckpointSortBy.UNSPECIFIED:
        raise InvalidInput("sortByMetric: cannot be combined with sortByAttr; send one of the two")
    descending = asked.order_by is OrderBy.DESC
    if asked.sort_by_metric or asked.sort_by_attr is CheckpointSortBy.SEARCHER_METRIC:
        return await _by_metric(api, found, asked)
    return tuple(sorted(found, key=lambda c: _attribute(c, asked.sort_by_attr), reverse=descending))


def _attribute(value: Checkpoint, sort_by: CheckpointSortBy) -> SortKey:
    match sort_by:
        case CheckpointSortBy.UUID:
            return (value.uuid,)
        case CheckpointSortBy.BATCH_NUMBER:
            return (value.steps_completed, value.trial_id, value.uuid)
        case CheckpointSortBy.END_TIME:
            return (value.reported_at.timestamp(), value.uuid)
        case CheckpointSortBy.STATE:
            return (value.state.value, value.trial_id, value.steps_completed, value.uuid)
        case _:
            return (value.trial_id, value.steps_completed, value.uuid)


async def _by_metric(
    api: ApiContext, found: Sequence[Checkpoint], asked: GetCheckpointsQuery
) -> tuple[Checkpoint, ...]:
    """Rows without the metric come last. The searcher's metric without a direction shows the better ones first."""
    validations = await validations_of(api, found)
    searched: dict[int, tuple[str, bool]] = {}
    """The searcher's metric of each experiment, and whether smaller values are better."""
    keyed: list[tuple[float, str, Checkpoint]] = []
    without: list[Checkpoint] = []
    for row in found:
        if row.experiment_id not in searched:
            experiment = await find_experiment(api, row.experiment_id)
            searched[row.experiment_id] = (experiment.metric, experiment.smaller_is_better)
        metric, smaller_is_better = searched[row.experiment_id]
        value = metric_at(validations[row.trial_id], row, asked.sort_by_metric or metric)
        if value is None or math.isnan(value):
            without.append(row)
            continue
        best_first = not asked.sort_by_metric and asked.order_by is OrderBy.UNSPECIFIED
        larger_first = not smaller_is_better if best_first else asked.order_by is OrderBy.DESC
        keyed.append((-value if larger_first else value, row.uuid, row))
    return (*(row for _, _, row in sorted(keyed, key=lambda k: k[:2])), *without)
