"""Experiments that run elsewhere: registered here, started, kept alive and ended by their own processes."""

from __future__ import annotations

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.enums import WireTrialState
from resolute.wire.rest.experiment_changes import CreateExperimentRequest
from resolute.wire.rest.unmanaged import (
    CreateTrialRequest,
    CreateTrialResponse,
    GetTrialByExternalIDResponse,
    PatchTrialRequest,
    PatchTrialResponse,
    PutExperimentResponse,
    PutTrialRequest,
    PutTrialResponse,
    StartTrialRequest,
    StartTrialResponse,
)
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.finders import find_experiment, find_trial, trial_at
from resolute_master.api.reading.showing import show_experiment, show_trial
from resolute_master.api.submission.create_experiment import create_from
from resolute_master.domain.change import ExternalExperiment
from resolute_master.domain.commands import CreateUnmanagedTrial, ReportUnmanagedTrial, StartUnmanagedRun
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, TrialId
from resolute_master.domain.trial import Trial
from resolute_master.store.base import TrialQuery

MAX_EXTERNAL_ID = 256

_STATES = {
    WireTrialState.RUNNING: ExperimentState.ACTIVE,
    WireTrialState.ACTIVE: ExperimentState.ACTIVE,
    WireTrialState.PAUSED: ExperimentState.PAUSED,
    WireTrialState.COMPLETED: ExperimentState.COMPLETED,
    WireTrialState.CANCELED: ExperimentState.CANCELED,
    WireTrialState.ERROR: ExperimentState.ERROR,
}


def _check_external_id(text: str, key: str) -> None:
    if not text.strip() or len(text) > MAX_EXTERNAL_ID:
        raise InvalidInput(f"{key}: must be a name of 1 to {MAX_EXTERNAL_ID} characters")


async def put_experiment(call: Call, _: None) -> PutExperimentResponse:
    """Creates an experiment for an external id. A repeated request returns the existing one, whatever the configuration."""
    name = call.text("externalExperimentId")
    _check_external_id(name, "externalExperimentId")
    named = call.api.engine.state.get(ExternalExperiment, name)
    if named is not None:
        shown = await show_experiment(call.api, await find_experiment(call.api, named.experiment_id))
        return PutExperimentResponse(experiment=shown, config=shown.config)
    request = await call.body(CreateExperimentRequest)
    if not request.unmanaged:
        raise InvalidInput("unmanaged: only unmanaged experiments have external ids; send unmanaged true")
    created = await create_from(call, request, external_id=name)
    return PutExperimentResponse(experiment=created.experiment, config=created.config)


async def _parent_of_new(call: Call) -> Experiment:
    return await find_experiment(call.api, (await call.body(CreateTrialRequest)).experiment_id)


async def _parent_of_put(call: Call) -> Experiment:
    request = (await call.body(PutTrialRequest)).create_trial_request
    if request is None:
        raise InvalidInput("createTrialRequest: name the experiment of the trial")
    return await find_experiment(call.api, request.experiment_id)


async def create_trial(call: Call, _: Experiment) -> CreateTrialResponse:
    """Creates a trial of an unmanaged experiment."""
    id_ = await _create_trial(call, await call.body(CreateTrialRequest), None)
    return CreateTrialResponse(trial=await show_trial(call.api, await find_trial(call.api, id_)))


async def put_trial(call: Call, _: Experiment) -> PutTrialResponse:
    """Creates a trial of an unmanaged experiment under an external id, or returns the existing one."""
    request = await call.body(PutTrialRequest)
    assert request.create_trial_request is not None, "the finder has looked"
    name = request.external_trial_id
    if name is not None:
        _check_external_id(name, "externalTrialId")
    id_ = await _create_trial(call, request.create_trial_request, name)
    return PutTrialResponse(trial=await show_trial(call.api, await find_trial(call.api, id_)))


async def _create_trial(call: Call, request: CreateTrialRequest, external_id: str | None) -> TrialId:
    if not request.unmanaged:
        raise InvalidInput("unmanaged: the search of a managed experiment makes its trials; send unmanaged true")
    id_: TrialId = await call.api.engine.submit(
        CreateUnmanagedTrial(
            experiment=ExperimentId(request.experiment_id), hparams=request.hparams or {}, external_id=external_id
        )
    )
    return id_


async def start(call: Call, trial: Trial) -> StartTrialResponse:
    """Reports that a run has started. The answer has the latest checkpoint, from which the run continues."""
    request = await call.body(StartTrialRequest)
    run: int = await call.api.engine.submit(StartUnmanagedRun(trial=trial.id, resume=bool(request.resume)))
    now = await find_trial(call.api, trial.id)
    latest = now.latest_checkpoint
    return StartTrialResponse(
        trial_run_id=run,
        latest_checkpoint=latest.uuid if latest else None,
        steps_completed=latest.steps_completed if latest else 0,
    )


async def patch(call: Call, trial: Trial) -> PatchTrialResponse:
    """Reports the state of an unmanaged trial."""
    request = await call.body(PatchTrialRequest)
    state = None
    if request.state not in (None, WireTrialState.UNSPECIFIED):
        state = _STATES.get(request.state)
        if state is None:
            raise InvalidInput(
                f"state: {request.state} cannot be reported by a trial; send STATE_RUNNING, STATE_COMPLETED, STATE_CANCELED or "
                "STATE_ERROR"
            )
    await call.api.engine.submit(ReportUnmanagedTrial(trial=trial.id, state=state))
    return PatchTrialResponse(trial=await show_trial(call.api, await find_trial(call.api, trial.id)))


async def _by_external_ids(call: Call) -> Trial:
    experiment, trial = call.text("externalExperimentId"), call.text("externalTrialId")
    named = call.api.engine.state.get(ExternalExperiment, experiment)
    if named is None:
        raise NotFound("experiment with external id", experiment)
    page = await call.api.store.page_trials(TrialQuery(experiment_id=named.experiment_id))
    for found in page.rows:
        if found.external_id == trial:
            return found
    raise NotFound("trial with external id", trial)


async def get_by_external_ids(call: Call, trial: Trial) -> GetTrialByExternalIDResponse:
    """The trial with an external id in the experiment with an external id."""
    return GetTrialByExternalIDResponse(trial=await show_trial(call.api, trial))


_TRIAL = "/api/v1/trials/{trialId}"
_BY_EXTERNAL_IDS = "/api/v1/trials/by-external-id/{externalExperimentId}/{externalTrialId}"

ROUTES = (
    Route(
        "PUT",
        "/api/v1/experiments/by-external-id/{externalExperimentId}",
        Action.CREATE_EXPERIMENT,
        nothing,
        put_experiment,
    ),
    Route("POST", "/api/v1/trials", Action.CONTROL_EXPERIMENT, _parent_of_new, create_trial),
    Route("PUT", "/api/v1/trials", Action.CONTROL_EXPERIMENT, _parent_of_put, put_trial),
    Route("POST", f"{_TRIAL}/start", Action.CONTROL_EXPERIMENT, trial_at("trialId"), start),
    Route("PATCH", _TRIAL, Action.CONTROL_EXPERIMENT, trial_at("trialId"), patch),
    Route("GET", _BY_EXTERNAL_IDS, Action.VIEW, _by_external_ids, get_by_external_ids),
)
