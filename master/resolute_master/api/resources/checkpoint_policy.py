"""How many checkpoints of an experiment are kept: what a policy would remove, and its change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from resolute.wire.codec import to_wire
from resolute.wire.rest.experiment_changes import PatchCheckpointStorage
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import experiment_at
from resolute_master.api.reading.showing import validations_of
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import SetCheckpointPolicy
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.metrics import MetricReport
from resolute_master.lifecycle.checkpoints import metric_at, policy_of, removable
from resolute_master.store.base import CheckpointQuery, TrialQuery


async def new_policy(api: ApiContext, experiment: Experiment, wanted: PatchCheckpointStorage) -> SetCheckpointPolicy:
    """The new policy of the experiment. Counts that `wanted` omits are unchanged."""
    found = await api.store.checkpoints(CheckpointQuery(experiment_id=experiment.id))
    validations, metric = await validations_of(api, found), experiment.metric
    return SetCheckpointPolicy(
        experiment=experiment.id,
        experiment_best=wanted.save_experiment_best,
        trial_best=wanted.save_trial_best,
        trial_latest=wanted.save_trial_latest,
        metrics={c.uuid: metric_at(validations[c.trial_id], c, metric) for c in found},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


async def preview(call: Call, experiment: Experiment) -> web.Response:
    """The checkpoints that garbage collection would remove with other counts. The names of the fields are those of the original's
    records."""
    asked = call.query(_Counts)
    wanted = PatchCheckpointStorage(
        save_experiment_best=asked.save_experiment_best,
        save_trial_best=asked.save_trial_best,
        save_trial_latest=asked.save_trial_latest,
    )
    policy = policy_of(experiment, await new_policy(call.api, experiment, wanted))
    found = await call.api.store.checkpoints(CheckpointQuery(experiment_id=experiment.id))
    trials = (await call.api.store.page_trials(TrialQuery(experiment_id=experiment.id))).rows
    gone = removable(found, trials, policy, smaller_is_better=experiment.smaller_is_better)
    validations = await validations_of(call.api, gone)
    body = {
        "metric_name": experiment.metric,
        "checkpoints": [_shown(checkpoint, validations[checkpoint.trial_id]) for checkpoint in gone],
    }
    return web.Response(body=msgspec.json.encode(to_wire(body)), content_type="application/json")


def _shown(checkpoint: Checkpoint, validations: tuple[MetricReport, ...]) -> dict[str, Any]:
    at = [report for report in validations if report.steps_completed == checkpoint.steps_completed]
    metrics = dict(at[-1].metrics) if at else {}
    return {
        "UUID": checkpoint.uuid,
        "TrialID": checkpoint.trial_id,
        "StepsCompleted": checkpoint.steps_completed,
        "State": checkpoint.state.value,
        "ReportTime": checkpoint.reported_at,
        "Resources": dict(checkpoint.resources),
        "ValidationMetrics": metrics,
        "step": {"validation": {"metrics": {"validation_metrics": metrics}} if at else None},
    }


ROUTES = (Route("GET", "/experiments/{experimentId}/preview_gc", Action.VIEW, experiment_at("experimentId"), preview),)
