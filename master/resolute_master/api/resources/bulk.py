"""One action on several experiments or runs. Each is authorised, done or refused by itself, and has an answer of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError
from resolute.wire.rest.bulk import (
    BulkExperimentFilters,
    ExperimentActionResult,
    KillExperimentsRequest,
    KillExperimentsResponse,
    KillRunsRequest,
    KillRunsResponse,
    MoveExperimentsRequest,
    MoveRunsRequest,
    PutExperimentsRetainLogsRequest,
    RunActionResult,
)
from resolute.wire.rest.empty import Empty
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, allow, nothing
from resolute_master.api.http.limits import MAX_PAGE_ROWS
from resolute_master.api.reading.finders import find_experiment, find_trial
from resolute_master.api.render.states import stored_states
from resolute_master.api.resources import experiments
from resolute_master.api.resources.retention import ENDED
from resolute_master.domain import commands as c
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from resolute_master.store.base import ExperimentQuery, TrialQuery

S = ExperimentState
_GOING_ON = tuple(state for state in S if not state.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bulk:
    """An action. `states`: the states in which it is possible, which filters without states select."""

    action: Action
    states: tuple[ExperimentState, ...]
    do: Callable[[Call, Experiment], Awaitable[Empty]]


_ACTIONS = {
    "activate": _Bulk(action=Action.ACTIVATE, states=(S.PAUSED,), do=experiments.activate),
    "pause": _Bulk(action=Action.PAUSE, states=(S.ACTIVE,), do=experiments.pause),
    "cancel": _Bulk(action=Action.CANCEL, states=_GOING_ON, do=experiments.cancel),
    "kill": _Bulk(action=Action.KILL, states=_GOING_ON, do=experiments.kill),
    "archive": _Bulk(action=Action.ARCHIVE, states=ENDED, do=experiments.archive),
    "unarchive": _Bulk(action=Action.ARCHIVE, states=ENDED, do=experiments.unarchive),
    "delete": _Bulk(action=Action.DELETE_EXPERIMENT, states=ENDED, do=experiments.delete),
}


# ----------------------------------------------------------------------------------------------------- experiments


def _handler(word: str, bulk: _Bulk) -> Callable[[Call, None], Awaitable[KillExperimentsResponse]]:
    async def handle(call: Call, _: None) -> KillExperimentsResponse:
        request = await call.body(KillExperimentsRequest)
        return await _each(call, request, bulk.states, lambda experiment: _do(call, bulk, experiment))

    handle.__doc__ = f"{word.capitalize()}s several experiments. Each has its own result."
    return handle


async def _do(call: Call, bulk: _Bulk, experiment: Experiment) -> None:
    await allow(call, bulk.action, experiment)
    await bulk.do(call, experiment)


async def move(call: Call, _: None) -> KillExperimentsResponse:
    """Moves several experiments to another project. Each has its own result."""
    request = await call.body(MoveExperimentsRequest)
    await experiments.allow_arrival(call, request.destination_project_id)
    return await _each(call, request, (), lambda each: _move(call, each, request.destination_project_id))


async def _move(call: Call, experiment: Experiment, project_id: int) -> None:
    await allow(call, Action.MOVE_EXPERIMENT, experiment)
    await call.api.engine.submit(c.MoveExperiment(experiment=experiment.id, project_id=project_id))


async def retain_logs(call: Call, _: None) -> KillExperimentsResponse:
    """Sets the log retention of several experiments. Each has its own result."""
    request = await call.body(PutExperimentsRetainLogsRequest)

    async def keep(experiment: Experiment) -> None:
        await allow(call, Action.CONTROL_EXPERIMENT, experiment)
        await call.api.engine.submit(c.SetExperimentLogRetention(experiment=experiment.id, days=request.num_days))

    return await _each(call, request, ENDED, keep)


async def _each(
    call: Call,
    request: KillExperimentsRequest | MoveExperimentsRequest | PutExperimentsRetainLogsRequest,
    states: tuple[ExperimentState, ...],
    act: Callable[[Experiment], Awaitable[None]],
) -> KillExperimentsResponse:
    project = call.number("projectId")
    results: list[ExperimentActionResult] = []
    for id_ in await _meant(call, request.experiment_ids, request.filters, project, states):
        error = ""
        try:
            experiment = await find_experiment(call.api, id_)
            if experiment.project_id != project:
                raise FailedPrecondition(f"experiment {id_} is in project {experiment.project_id}, not in {project}")
            await act(experiment)
        except ResoluteError as refused:
            error = str(refused)
        results.append(ExperimentActionResult(id=id_, error=error))
    return KillExperimentsResponse(results=tuple(results))


async def _meant(
    call: Call,
    ids: Iterable[int],
    filters: BulkExperimentFilters | None,
    project: int,
    states: tuple[ExperimentState, ...],
) -> list[int]:
    """The selected ids, sorted. With filters, `ids` have no effect. Raises `InvalidInput` for more than a page of them."""
    if filters is None:
        found = [int(id_) for id_ in sorted(set(ids))]
    else:
        query = ExperimentQuery(
            limit=MAX_PAGE_ROWS + 1,
            archived=filters.archived,
            states=stored_states(filters.states) or states,
            owners=filters.user_ids,
            labels=filters.labels,
            name=filters.name or "",
            description=filters.description or "",
            project_id=project,
            exclude_ids=filters.excluded_experiment_ids,
        )
        found = [int(row.id) for row in (await call.api.store.page_experiments(query)).rows]
    if len(found) > MAX_PAGE_ROWS:
        raise InvalidInput(f"experimentIds: more than {MAX_PAGE_ROWS} experiments are selected; select fewer")
    return found


# ------------------------------------------------------------------------------------------------------------ runs


def _runs_handler(word: str, bulk: _Bulk) -> Callable[[Call, None], Awaitable[KillRunsResponse]]:
    async def handle(call: Call, _: None) -> KillRunsResponse:
        request = await call.body(KillRunsRequest)
        return await _each_run(
            call, request.run_ids, request.filter, request.project_id, lambda trial: _as_whole(call, bulk, trial)
        )

    handle.__doc__ = (
        f"{word.capitalize()}s several runs, each the only trial of its experiment. Each has its own result."
    )
    return handle


async def _as_whole(call: Call, bulk: _Bulk, trial: Trial) -> None:
    await _do(call, bulk, await _alone_in(call, trial))


async def kill_runs(call: Call, _: None) -> KillRunsResponse:
    """Kills runs. Other trials of the same search continue."""
    request = await call.body(KillRunsRequest)

    async def kill(trial: Trial) -> None:
        await allow(call, Action.KILL, trial)
        await call.api.engine.submit(c.KillTrial(trial=trial.id))

    return await _each_run(call, request.run_ids, request.filter, request.project_id, kill)


async def move_runs(call: Call, _: None) -> KillRunsResponse:
    """Moves the experiments of several runs to another project. Each has its own result."""
    request = await call.body(MoveRunsRequest)
    await experiments.allow_arrival(call, request.destination_project_id)

    async def move_one(trial: Trial) -> None:
        try:
            experiment = await _alone_in(call, trial)
        except FailedPrecondition:
            if request.skip_multitrial:
                return
            raise
        await _move(call, experiment, request.destination_project_id)

    return await _each_run(call, request.run_ids, request.filter, request.source_project_id, move_one)


async def _alone_in(call: Call, trial: Trial) -> Experiment:
    """The experiment of the trial, which must be its only trial, because the action affects all of them."""
    experiment = await find_experiment(call.api, trial.experiment_id)
    page = await call.api.store.page_trials(TrialQuery(experiment_id=experiment.id, limit=0))
    if page.total > 1 or experiment.settings.searcher.get("name") != "single":
        raise FailedPrecondition(
            f"run {trial.id} is one trial of the search of experiment {experiment.id}; act on the experiment"
        )
    return experiment


async def _each_run(
    call: Call, ids: Iterable[int], expression: str | None, project: int | None, act: Callable[[Trial], Awaitable[None]]
) -> KillRunsResponse:
    if expression:
        raise InvalidInput("filter: expressions of the web interface are not served yet; name the runs in runIds")
    results: list[RunActionResult] = []
    for id_ in sorted(set(ids)):
        error = ""
        try:
            trial = await find_trial(call.api, id_)
            within = (await find_experiment(call.api, trial.experiment_id)).project_id
            if project and within != project:
                raise FailedPrecondition(f"run {id_} is in project {within}, not in {project}")
            await act(trial)
        except ResoluteError as refused:
            error = str(refused)
        results.append(RunActionResult(id=id_, error=error))
    return KillRunsResponse(results=tuple(results))


_OF_PROJECT = "/api/v1/projects/{projectId}/experiments"
_RUNS = {word: word for word in ("archive", "delete", "pause", "unarchive")} | {"resume": "activate"}

ROUTES = (
    *(
        Route(
            "DELETE" if word == "delete" else "POST",
            f"{_OF_PROJECT}/{word}",
            Action.BULK,
            nothing,
            _handler(word, bulk),
        )
        for word, bulk in _ACTIONS.items()
    ),
    Route("POST", f"{_OF_PROJECT}/move", Action.BULK, nothing, move),
    Route("PUT", f"{_OF_PROJECT}/retain_logs", Action.BULK, nothing, retain_logs),
    *(
        Route("POST", f"/api/v1/runs/{word}", Action.BULK, nothing, _runs_handler(word, _ACTIONS[name]))
        for word, name in _RUNS.items()
    ),
    Route("POST", "/api/v1/runs/kill", Action.BULK, nothing, kill_runs),
    Route("POST", "/api/v1/runs/move", Action.BULK, nothing, move_runs),
)
