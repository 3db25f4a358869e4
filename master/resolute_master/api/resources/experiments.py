"""Experiments: create, list, show, control, change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.checkpoints import GetCheckpointsQuery, GetExperimentCheckpointsResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import ExperimentSortBy, OrderBy, TrialSortBy
from resolute.wire.rest.experiment_changes import (
    DeleteExperimentLabelResponse,
    GetModelDefResponse,
    MoveExperimentRequest,
    PatchExperimentResponse,
    PatchResources,
    PutExperimentLabelResponse,
)
from resolute.wire.rest.experiment_changes import PatchExperiment as WirePatch
from resolute.wire.rest.experiments import (
    GetExperimentResponse,
    GetExperimentsQuery,
    GetExperimentsResponse,
    Int32FieldFilter,
)
from resolute.wire.rest.trials import (
    GetBestSearcherValidationMetricResponse,
    GetExperimentTrialsQuery,
    GetExperimentTrialsResponse,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Also, Call, Route, allow, large_response, nothing
from resolute_master.api.http.limits import MAX_PAGE_ROWS, MAX_UPLOAD_BYTES
from resolute_master.api.http.paging import pagination
from resolute_master.api.queue.positions import job_summary
from resolute_master.api.queue.rights import allow_queue_change
from resolute_master.api.reading.finders import experiment_at, find_experiment, user_named
from resolute_master.api.reading.listing import page_of_checkpoints
from resolute_master.api.reading.showing import show_experiment, show_experiments, show_trials
from resolute_master.api.render.states import stored_states
from resolute_master.api.resources.checkpoint_policy import new_policy
from resolute_master.api.submission.create_experiment import create_experiment
from resolute_master.api.submission.experiment_limits import check_texts
from resolute_master.domain import commands as c
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import CheckpointQuery, ExperimentQuery, TrialQuery

DEFAULT_PAGE = 100
EVERYTHING = -1
COUNTS_ONLY = -2


# --------------------------------------------------------------------------------------------------------- reading


async def get_experiment(call: Call, experiment: Experiment) -> GetExperimentResponse:
    """An experiment, with the summary of its job while it has not ended."""
    shown = await show_experiment(call.api, experiment)
    summary = await job_summary(call.api, experiment)
    return GetExperimentResponse(experiment=shown, config=shown.config, job_summary=summary)


async def list_experiments(call: Call, _: None) -> GetExperimentsResponse | web.Response:
    """One page of experiments, by filter and order."""
    asked = call.query(GetExperimentsQuery)
    query = await _experiment_query(call, asked)
    if query is None:
        return GetExperimentsResponse(
            experiments=(), pagination=pagination(start=0, count=0, total=0, limit=asked.limit)
        )
    page = await call.api.store.page_experiments(query)
    rows = await show_experiments(call.api, page.rows)
    pages = pagination(start=page.offset, count=len(rows), total=page.total, limit=asked.limit)
    return await large_response(GetExperimentsResponse(experiments=rows, pagination=pages))


async def _experiment_query(call: Call, asked: GetExperimentsQuery) -> ExperimentQuery | None:
    """The query of a list. None if the filters match nothing: unknown users, or ids that contradict each other."""
    owners = set(asked.user_ids)
    owners |= {user.id for user in (user_named(call.api, name) for name in asked.users) if user is not None}
    if (asked.users or asked.user_ids) and not owners:
        return None
    ids = await _ids(call, asked.experiment_id_filter)
    if ids == ():
        return None
    limits = {0: DEFAULT_PAGE, EVERYTHING: MAX_PAGE_ROWS, COUNTS_ONLY: 0}
    if asked.limit < COUNTS_ONLY:
        raise InvalidInput(f"limit: {asked.limit} is not valid; give a number of rows, -1 for all, -2 for none")
    sort = "id" if asked.sort_by is ExperimentSortBy.UNSPECIFIED else asked.sort_by.name.lower()
    return ExperimentQuery(
        offset=asked.offset,
        limit=min(limits.get(asked.limit, asked.limit), MAX_PAGE_ROWS),
        archived=asked.archived,
        states=stored_states(asked.states),
        owners=tuple(sorted(owners)),
        labels=asked.labels,
        name=asked.name or "",
        description=asked.description or "",
        project_id=asked.project_id or None,
        ids=ids or (),
        exclude_ids=asked.experiment_id_filter.not_in if asked.experiment_id_filter else (),
        sort_by=sort,
        descending=asked.order_by is OrderBy.DESC,
    )


async def _ids(call: Call, asked: Int32FieldFilter | None) -> tuple[int, ...] | None:
    """The ids within the bounds; None without a bound."""
    if asked is None:
        return None
    bounds = (asked.gt, asked.gte, asked.lt, asked.lte)
    if all(bound is None for bound in bounds):
        return asked.incl or None
    every = await call.api.store.page_experiments(ExperimentQuery(limit=None))
    ids = asked.incl or tuple(row.id for row in every.rows)
    return tuple(
        id_
        for id_ in ids
        if (asked.gt is None or id_ > asked.gt)
        and (asked.gte is None or id_ >= asked.gte)
        and (asked.lt is None or id_ < asked.lt)
        and (asked.lte is None or id_ <= asked.lte)
    )


async def list_trials(call: Call, experiment: Experiment) -> GetExperimentTrialsResponse:
    """One page of the trials of an experiment, by state and order."""
    asked = call.query(GetExperimentTrialsQuery)
    if asked.limit < 0:
        raise InvalidInput(f"limit: {asked.limit} must not be negative; 0 means no limit")
    sort = "id" if asked.sort_by is TrialSortBy.UNSPECIFIED else asked.sort_by.name.lower()
    page = await call.api.store.page_trials(
        TrialQuery(
            experiment_id=experiment.id,
            offset=asked.offset,
            limit=min(asked.limit or MAX_PAGE_ROWS, MAX_PAGE_ROWS),
            states=stored_states(asked.states),
            sort_by=sort,
            descending=asked.order_by is OrderBy.DESC,
        )
    )
    rows = await show_trials(call.api, experiment, page.rows)
    return GetExperimentTrialsResponse(
        trials=rows, pagination=pagination(start=page.offset, count=len(rows), total=page.total, limit=asked.limit)
    )


async def list_checkpoints(call: Call, experiment: Experiment) -> GetExperimentCheckpointsResponse:
    """One page of the checkpoints of an experiment, by state and order."""
    query = call.query(GetCheckpointsQuery)
    rows, pages = await page_of_checkpoints(call.api, CheckpointQuery(experiment_id=experiment.id), query)
    return GetExperimentCheckpointsResponse(checkpoints=rows, pagination=pages)


async def get_model_definition(call: Call, experiment: Experiment) -> web.Response:
    """The model definition of an experiment, as a tar.gz archive in base64."""
    archive = await call.api.store.get_context(experiment.context_hash) if experiment.context_hash else b""
    if archive is None:
        raise NotFound("model definition of experiment", experiment.id)
    return await large_response(GetModelDefResponse(b64_tgz=archive))


async def best_metric(call: Call, experiment: Experiment) -> GetBestSearcherValidationMetricResponse:
    """The best validation metric of an experiment so far."""
    if experiment.best_validation is None:
        raise NotFound("validation of experiment", experiment.id)
    return GetBestSearcherValidationMetricResponse(metric=experiment.best_validation)


# --------------------------------------------------------------------------------------------------------- control

Order = Callable[[ExperimentId], c.Command]


def _order(summary: str, command: Order) -> Callable[[Call, Experiment], Awaitable[Empty]]:
    """A handler that only submits a command about the experiment. `summary` describes it in the API."""

    async def handle(call: Call, experiment: Experiment) -> Empty:
        await call.api.engine.submit(command(experiment.id))
        return Empty()

    handle.__doc__ = summary
    return handle


activate = _order("Activates a paused experiment.", lambda id_: c.ActivateExperiment(experiment=id_))
pause = _order(
    "Pauses an experiment: its trials save a checkpoint and release their slots.",
    lambda id_: c.PauseExperiment(experiment=id_),
)
cancel = _order(
    "Cancels an experiment: its trials save a checkpoint and end.", lambda id_: c.CancelExperiment(experiment=id_)
)
kill = _order("Kills an experiment: its trials end at once.", lambda id_: c.KillExperiment(experiment=id_))
archive = _order(
    "Archives an experiment that has ended.", lambda id_: c.ArchiveExperiment(experiment=id_, archived=True)
)
unarchive = _order("Unarchives an experiment.", lambda id_: c.ArchiveExperiment(experiment=id_, archived=False))
delete = _order(
    "Deletes an experiment that has ended, with its checkpoints, metrics and logs.",
    lambda id_: c.DeleteExperiment(experiment=id_),
)
delete_tensorboards = _order(
    "Deletes the TensorBoard files of an experiment.", lambda id_: c.RemoveTensorboards(experiment=id_)
)


async def patch(call: Call, experiment: Experiment) -> PatchExperimentResponse:
    """Changes the name, description, labels, notes, resources or checkpoint retention of an experiment."""
    wanted = await call.body(WirePatch)
    if wanted.name is not None and not wanted.name.strip():
        raise InvalidInput("name: must not be blank; give the experiment a name")
    check_texts(name=wanted.name, description=wanted.description, notes=wanted.notes, labels=wanted.labels)
    resources, storage = wanted.resources, wanted.checkpoint_storage
    if resources is not None and (resources.priority is not None or resources.weight is not None):
        await allow_queue_change(call, _job_change(experiment, resources))
    # One command, so that what is refused for one of its parts is not stored for another.
    await call.api.engine.submit(
        c.PatchExperiment(
            experiment=experiment.id,
            name=wanted.name,
            description=wanted.description,
            notes=wanted.notes,
            labels=wanted.labels,
            job=None if resources is None else _job_change(experiment, resources),
            checkpoint_policy=None if storage is None else await new_policy(call.api, experiment, storage),
        )
    )
    shown = await show_experiment(call.api, await find_experiment(call.api, experiment.id))
    return PatchExperimentResponse(experiment=shown)


def _job_change(experiment: Experiment, wanted: PatchResources) -> c.UpdateJob:
    return c.UpdateJob(
        job=experiment.job_id, priority=wanted.priority, weight=wanted.weight, max_slots=wanted.max_slots
    )


async def add_label(call: Call, experiment: Experiment) -> PutExperimentLabelResponse:
    """Adds a label to an experiment; returns all its labels."""
    label = call.text("label")
    check_texts(labels=(label,))
    await call.api.engine.submit(c.PatchExperiment(experiment=experiment.id, add_labels=(label,)))
    return PutExperimentLabelResponse(labels=(await find_experiment(call.api, experiment.id)).labels)


async def remove_label(call: Call, experiment: Experiment) -> DeleteExperimentLabelResponse:
    """Removes a label from an experiment; returns its other labels."""
    await call.api.engine.submit(c.PatchExperiment(experiment=experiment.id, remove_labels=(call.text("label"),)))
    return DeleteExperimentLabelResponse(labels=(await find_experiment(call.api, experiment.id)).labels)


async def allow_arrival(call: Call, project_id: int) -> None:
    """Checks that the caller may move experiments to a project. Raises `NotFound` for an unknown project, and
    `PermissionDenied`."""
    project = workspaces.need_project(call.api.engine.state, project_id)
    place = workspaces.need_workspace(call.api.engine.state, project.workspace_id)
    await allow(call, Action.CREATE_EXPERIMENT, place)


async def move(call: Call, experiment: Experiment) -> Empty:
    """Moves an experiment to another project."""
    wanted = await call.body(MoveExperimentRequest)
    await allow_arrival(call, wanted.destination_project_id)
    await call.api.engine.submit(c.MoveExperiment(experiment=experiment.id, project_id=wanted.destination_project_id))
    return Empty()


_AT = "/api/v1/experiments/{experimentId}"
_one = experiment_at("experimentId")
_PATCHED = (
    Also(Action.CONTROL_QUEUE, "with `resources.priority` or `resources.weight`"),
    Also(Action.OVERTAKE, "with a priority ahead of others' work"),
)

ROUTES = (
    Route(
        "POST", "/api/v1/experiments", Action.CREATE_EXPERIMENT, nothing, create_experiment, max_body=MAX_UPLOAD_BYTES
    ),
    Route("GET", "/api/v1/experiments", Action.VIEW, nothing, list_experiments),
    Route("GET", _AT, Action.VIEW, _one, get_experiment),
    Route("PATCH", _AT, Action.CONTROL_EXPERIMENT, _one, patch, also=_PATCHED),
    Route("DELETE", _AT, Action.DELETE_EXPERIMENT, _one, delete),
    Route("POST", f"{_AT}/activate", Action.ACTIVATE, _one, activate),
    Route("POST", f"{_AT}/pause", Action.PAUSE, _one, pause),
    Route("POST", f"{_AT}/cancel", Action.CANCEL, _one, cancel),
    Route("POST", f"{_AT}/kill", Action.KILL, _one, kill),
    Route("POST", f"{_AT}/archive", Action.ARCHIVE, _one, archive),
    Route("POST", f"{_AT}/unarchive", Action.ARCHIVE, _one, unarchive),
    Route("POST", f"{_AT}/move", Action.MOVE_EXPERIMENT, _one, move, also=(Also(Action.CREATE_EXPERIMENT),)),
    Route("PUT", f"{_AT}/labels/{{label}}", Action.CONTROL_EXPERIMENT, _one, add_label),
    Route("DELETE", f"{_AT}/labels/{{label}}", Action.CONTROL_EXPERIMENT, _one, remove_label),
    Route("DELETE", f"{_AT}/tensorboard-files", Action.CONTROL_EXPERIMENT, _one, delete_tensorboards),
    Route("GET", f"{_AT}/trials", Action.VIEW, _one, list_trials),
    Route("GET", f"{_AT}/checkpoints", Action.VIEW, _one, list_checkpoints),
    Route("GET", f"{_AT}/model_def", Action.VIEW, _one, get_model_definition),
    Route("GET", f"{_AT}/searcher/best_searcher_validation_metric", Action.VIEW, _one, best_metric),
)
