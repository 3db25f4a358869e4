"""Searches for experiments and runs in the filter language of the contract, its columns, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import ColumnType, LocationType, TableType
from resolute.wire.rest.searches import (
    FlatRun,
    FlatRunExperiment,
    GetExperimentLabelsQuery,
    GetExperimentLabelsResponse,
    GetMetadataValuesResponse,
    GetProjectColumnsQuery,
    GetProjectColumnsResponse,
    GetProjectNumericMetricsRangeResponse,
    MetricsRange,
    ProjectColumn,
    SearchExperimentExperiment,
    SearchExperimentsRequest,
    SearchExperimentsResponse,
    SearchRunsRequest,
    SearchRunsResponse,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, nothing, rendered
from resolute_master.api.http.limits import MAX_PAGE_ROWS
from resolute_master.api.http.paging import pagination
from resolute_master.api.reading.finders import project_at
from resolute_master.api.reading.showing import TrialParts, show_experiments, trial_parts
from resolute_master.api.render.states import trial_state
from resolute_master.api.render.summaries import summaries
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.event_loop import yielding
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import Page
from resolute_master.store.metric_rows import TRAINING, VALIDATION
from resolute_master.store.search_filter import (
    FIELDS,
    Kind,
    SearchQuery,
    Statistic,
    Table,
    parse_filter,
    parse_sort,
    searchable,
)

MAX_FILTER_LENGTH = 100_000
"""Characters of a filter: about what its limit of fields needs."""


def search_query(api: ApiContext, asked: SearchExperimentsRequest | SearchRunsRequest, table: Table) -> SearchQuery:
    """The query to the store. Raises `InvalidInput` with the position of the error."""
    if asked.limit < 0:
        raise InvalidInput(f"limit: {asked.limit} must not be negative; 0 means no limit")
    if len(asked.filter) > MAX_FILTER_LENGTH:
        raise InvalidInput(f"filter: has more than {MAX_FILTER_LENGTH} characters")
    tree, archived = parse_filter(asked.filter, table)
    return SearchQuery(
        filter=tree,
        sort=parse_sort(asked.sort, table),
        project_id=asked.project_id or None,
        archived=None if archived else False,
        offset=asked.offset,
        limit=min(asked.limit or MAX_PAGE_ROWS, MAX_PAGE_ROWS),
        usernames={user.id: user.username for user in api.engine.state.all(User)},
    )


async def found_experiments(api: ApiContext, query: SearchQuery) -> tuple[Page[Experiment], Mapping[int, Trial]]:
    """The read model of the list: a page of experiments, and by their ids the best trials of those that have one."""
    page = await api.store.search_experiments(query)
    best = await api.store.trials([each.best_trial for each in page.rows if each.best_trial is not None])
    return page, {trial.experiment_id: trial for trial in best}


async def search_experiments(call: Call, _: None) -> web.Response:
    """One page of experiments, by a filter over any column, with their best trials."""
    asked = await call.body(SearchExperimentsRequest)
    page, best = await found_experiments(call.api, search_query(call.api, asked, Table.EXPERIMENTS))
    shown = await show_experiments(call.api, page.rows)
    parts = await trial_parts(call.api, tuple(best.values()), {each.id: each for each in page.rows})
    pages = pagination(start=page.offset, count=len(page.rows), total=page.total, limit=asked.limit)

    def answer() -> SearchExperimentsResponse:
        rows = (
            SearchExperimentExperiment(
                experiment=wire, best_trial=parts[best[wire.id].id].shown() if wire.id in best else None
            )
            for wire in yielding(shown)
        )
        return SearchExperimentsResponse(experiments=tuple(rows), pagination=pages)

    return await rendered(answer)


async def search_runs(call: Call, _: None) -> web.Response:
    """One page of runs, by a filter over any column."""
    asked, api = await call.body(SearchRunsRequest), call.api
    page = await api.store.search_trials(search_query(api, asked, Table.RUNS))
    experiments = {each.id: each for each in await api.store.experiments([t.experiment_id for t in page.rows])}
    parts = await trial_parts(api, page.rows, experiments)
    pages = pagination(start=page.offset, count=len(page.rows), total=page.total, limit=asked.limit)
    places = {each.id: each for each in workspaces.workspaces(api.engine.state)}
    projects = {each.id: each for each in workspaces.projects(api.engine.state)}

    def answer() -> SearchRunsResponse:
        rows = tuple(_run(parts[trial.id], places, projects) for trial in yielding(page.rows))
        return SearchRunsResponse(runs=rows, pagination=pages)

    return await rendered(answer)


def _run(parts: TrialParts, places: Mapping[int, Workspace], projects: Mapping[int, Project]) -> FlatRun:
    trial, experiment, around = parts.trial, parts.around.experiment, parts.around
    project = projects[experiment.project_id]
    # By its project: an experiment follows a project that was moved a moment later.
    place = places[project.workspace_id]
    kept = parts.kept()
    ended = trial.ended_at
    return FlatRun(
        id=trial.id,
        archived=experiment.archived,
        parent_archived=project.archived or place.archived,
        checkpoint_count=len(kept),
        checkpoint_size=_size(kept),
        project_id=experiment.project_id,
        project_name=project.name,
        workspace_id=place.id,
        workspace_name=place.name,
        start_time=trial.started_at,
        state=trial_state(trial.state, around.allocations, unmanaged=experiment.unmanaged),
        duration=max(0, int(((ended or around.now) - trial.started_at).total_seconds())),
        end_time=ended,
        experiment=_of(experiment),
        external_run_id=trial.external_id,
        hyperparameters=trial.hparams,
        labels=experiment.labels,
        local_id=str(trial.id),
        log_policy_matched=trial.log_policy_matched,
        metadata=trial.metadata,
        searcher_metric_value=trial.best_validation.metric if trial.best_validation else None,
        summary_metrics=summaries(parts.chunks),
        user_id=experiment.owner,
    )


def _size(checkpoints: Sequence[Checkpoint]) -> int:
    return sum(each.size for each in checkpoints)


def _of(experiment: Experiment) -> FlatRunExperiment:
    config = experiment.config
    return FlatRunExperiment(
        id=experiment.id,
        name=experiment.name,
        description=experiment.description,
        is_multitrial=config["searcher"]["name"] != "single",
        progress=experiment.progress,
        resource_pool=str(config["resources"]["resource_pool"]),
        searcher_metric=experiment.metric,
        searcher_type=str(config["searcher"]["name"]),
        unmanaged=experiment.unmanaged,
        external_experiment_id=experiment.external_id,
        forked_from=experiment.parent_id,
    )


# ---------------------------------------------------------------------------------------------------------- columns

_TYPES = {
    Kind.NUMBER: ColumnType.NUMBER,
    Kind.TEXT: ColumnType.TEXT,
    Kind.STATE: ColumnType.TEXT,
    Kind.DATE: ColumnType.DATE,
    Kind.LABELS: ColumnType.TEXT,
}
_METRIC_LOCATIONS = {TRAINING: LocationType.TRAINING, VALIDATION: LocationType.VALIDATIONS}


async def columns(call: Call, project: Project) -> GetProjectColumnsResponse:
    """The columns by which the experiments or runs of a project can be filtered and sorted."""
    runs = call.query(GetProjectColumnsQuery).table_type is TableType.RUN
    table = Table.RUNS if runs else Table.EXPERIMENTS
    own = LocationType.RUN if runs else LocationType.EXPERIMENT
    of_hyperparameters = LocationType.RUN_HYPERPARAMETERS if runs else LocationType.HYPERPARAMETERS
    found = [ProjectColumn(column=name, location=own, type=_TYPES[kind]) for name, kind in FIELDS[table].items()]
    for name, numbers in (await call.api.store.hyperparameter_names(project.id)).items():
        kind = ColumnType.NUMBER if numbers else ColumnType.TEXT
        found.append(ProjectColumn(column=f"hp.{name}", location=of_hyperparameters, type=kind))
    for group, name, type_ in await call.api.store.metric_names(project.id):
        location = _METRIC_LOCATIONS.get(group, LocationType.CUSTOM_METRIC)
        found += [
            ProjectColumn(column=f"{group}.{name}.{statistic}", location=location, type=ColumnType.NUMBER)
            for statistic in Statistic
            if type_ == "number"
        ]
    return GetProjectColumnsResponse(columns=tuple(found))


async def metric_ranges(call: Call, project: Project) -> GetProjectNumericMetricsRangeResponse:
    """Least and greatest value of each metric in a project."""
    found = await call.api.store.result_ranges(project.id)
    ranges = (MetricsRange(metrics_name=name, min=low, max=high) for name, (low, high) in found.items())
    return GetProjectNumericMetricsRangeResponse(ranges=tuple(ranges))


async def metadata_values(call: Call, project: Project) -> GetMetadataValuesResponse:
    """The texts under the key, including those in lists. Names of nested keys are joined by dots, as in hyperparameters."""
    first, *inner = searchable(call.text("key"), "key").split(".")
    found = await call.api.store.run_metadata(project.id, first)
    return GetMetadataValuesResponse(values=tuple(sorted({t for each in found for t in _texts(each, (first, *inner))})))


def _texts(value: Any, path: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _texts(item, path)
    elif path and isinstance(value, Mapping):
        yield from _texts(value.get(path[0]), path[1:])
    elif not path and isinstance(value, str):
        yield value


async def labels(call: Call, _: None) -> GetExperimentLabelsResponse:
    """All labels of experiments, the most frequent first."""
    project = call.query(GetExperimentLabelsQuery).project_id
    return GetExperimentLabelsResponse(labels=await call.api.store.labels(project or None))


ROUTES = (
    Route("POST", "/api/v1/experiments-search", Action.VIEW, nothing, search_experiments),
    Route("POST", "/api/v1/runs", Action.VIEW, nothing, search_runs),
    Route("GET", "/api/v1/projects/{id}/columns", Action.VIEW, project_at("id"), columns),
    Route("GET", "/api/v1/projects/{id}/experiments/metric-ranges", Action.VIEW, project_at("id"), metric_ranges),
    Route("GET", "/api/v1/projects/{projectId}/metadata/{key}", Action.VIEW, project_at("projectId"), metadata_values),
    Route("GET", "/api/v1/experiment/labels", Action.VIEW, nothing, labels),
)
