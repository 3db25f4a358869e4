"""One trial: its curves, where its time went, its checkpoints, and its log, which is followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import NotFound
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import find_experiment, find_trial, trial_at
from resolute_master.domain.trial import Trial
from resolute_master.store.base import CheckpointQuery
from resolute_web.page import Page, data, page, see
from resolute_web.series import Summaries, column_of, line_of, names_of, summaries_of
from resolute_web.trials import flat, lived, removed_checkpoints, row_of

MOST_CHARTS = 8


async def find(call: Call) -> Trial:
    """Under its own experiment only."""
    trial = await find_trial(call.api, call.number("trialId"))
    if trial.experiment_id != call.number("experimentId"):
        raise NotFound("trial", str(trial.id), f"it belongs to experiment {trial.experiment_id}")
    return trial


async def tabbed(call: Call, trial: Trial, tab: str, template: str, **values: Any) -> web.Response:
    experiment = await find_experiment(call.api, trial.experiment_id)
    return await page(
        call,
        template,
        title=f"Trial {trial.id} · experiment {experiment.id}",
        section="Experiments",
        topics=(f"trial:{trial.id}",),
        experiment=experiment,
        row=row_of(call.api, experiment, trial),
        tab=tab,
        **values,
    )


async def overview(call: Call, trial: Trial) -> web.Response:
    experiment = await find_experiment(call.api, trial.experiment_id)
    told = await summaries_of(call.api, trial.id)
    checkpoints = await call.api.store.checkpoints(CheckpointQuery(trial_id=trial.id))
    names = names_of(told, experiment.metric)
    return await tabbed(
        call,
        trial,
        "",
        "trial.html",
        charts=names[:MOST_CHARTS],
        uncharted=names[MOST_CHARTS:],
        summaries=tuple(told.values()),
        life=await lived(call.api, trial),
        checkpoints=sorted(checkpoints, key=lambda each: (-each.steps_completed, each.uuid)),
        removed=await removed_checkpoints(call.api, trial.experiment_id, trial.id),
        hyperparameters=flat(trial.hparams),
    )


async def curves(call: Call, trial: Trial) -> web.Response:
    """The charts of the page, by the metric's name, or of the one that is asked for; each has the lines of all groups."""
    experiment = await find_experiment(call.api, trial.experiment_id)
    told = await summaries_of(call.api, trial.id)
    wanted = call.request.query.get("metric", "")
    names = [wanted] if wanted else names_of(told, experiment.metric)[:MOST_CHARTS]
    charts = {name: {"title": name, "lines": await _lines(call, trial, told, name)} for name in names}
    return data(msgspec.json.encode({"charts": charts}))


async def _lines(call: Call, trial: Trial, told: Summaries, name: str) -> Sequence[Mapping[str, Any]]:
    groups = [group for group, each in told if each == name]
    lines = [(group, await line_of(call.api, trial.id, group, name)) for group in groups]
    return [column_of(group, points, begun=trial.started_at) for group, points in lines if points]


async def elsewhere(call: Call, trial: Trial) -> web.Response:
    """The address without the experiment."""
    return see(f"/det/experiments/{trial.experiment_id}/trials/{trial.id}")


_AT = "/det/experiments/{experimentId}/trials/{trialId}"

PAGES: Sequence[Page] = (
    Page("GET", _AT, Action.VIEW, find, overview),
    Page("GET", f"{_AT}/curves", Action.VIEW, find, curves),
    Page("GET", "/det/trials/{trialId}", Action.VIEW, trial_at("trialId"), elsewhere),
)
