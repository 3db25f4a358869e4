"""Which trials use which checkpoints, and what they report."""

from __future__ import annotations

from resolute.errors import FailedPrecondition
from resolute.wire.rest.checkpoints import (
    GetTrialMetricsByCheckpointQuery,
    GetTrialMetricsByCheckpointResponse,
    ReportTrialSourceInfoRequest,
    ReportTrialSourceInfoResponse,
)
from resolute.wire.rest.enums import TrialSourceInfoType
from resolute.wire.rest.metrics import MetricsReport
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import checkpoint_at, find_checkpoint, find_trial
from resolute_master.api.resources.metrics import render_report
from resolute_master.domain.checkpoint import Checkpoint, CheckpointPurpose
from resolute_master.domain.commands import UseCheckpoint
from resolute_master.domain.trial import Trial


async def _reporting(call: Call) -> Trial:
    request = await call.body(ReportTrialSourceInfoRequest)
    return await find_trial(call.api, request.trial_source_info.trial_id)


async def report(call: Call, trial: Trial) -> ReportTrialSourceInfoResponse:
    """Records the checkpoint that a trial uses. A repeated request changes nothing."""
    info = (await call.body(ReportTrialSourceInfoRequest)).trial_source_info
    if info.model_id is not None or info.model_version is not None:
        raise FailedPrecondition("modelId: there is no model registry yet; name the checkpoint alone")
    checkpoint = await find_checkpoint(call.api, info.checkpoint_uuid)
    fine_tuning = info.trial_source_info_type is TrialSourceInfoType.FINE_TUNING
    purpose = CheckpointPurpose.FINE_TUNING if fine_tuning else CheckpointPurpose.INFERENCE
    await call.api.engine.submit(UseCheckpoint(trial=trial.id, uuid=checkpoint.uuid, purpose=purpose))
    return ReportTrialSourceInfoResponse(trial_id=trial.id, checkpoint_uuid=checkpoint.uuid)


async def metrics(call: Call, checkpoint: Checkpoint) -> GetTrialMetricsByCheckpointResponse:
    """The metrics of the trials that use the checkpoint, by trial and step."""
    query = call.query(GetTrialMetricsByCheckpointQuery)
    wanted = query.trial_source_info_type
    trials = {
        use.trial_id
        for use in checkpoint.used_by
        if wanted is TrialSourceInfoType.UNSPECIFIED or use.purpose.name == wanted.name
    }
    found: list[MetricsReport] = []
    for trial in sorted(trials):
        for row in await call.api.store.metrics(trial, query.metric_group or None):
            found.append(render_report(row, len(found) + 1))
    return GetTrialMetricsByCheckpointResponse(metrics=tuple(found))


ROUTES = (
    Route("POST", "/api/v1/trial-source-info", Action.REPORT, _reporting, report),
    Route(
        "GET",
        "/api/v1/checkpoints/{checkpointUuid}/metrics",
        Action.VIEW,
        checkpoint_at("checkpointUuid"),
        metrics,
    ),
)
