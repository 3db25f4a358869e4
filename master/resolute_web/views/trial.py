"""One trial: its curves, where its time went, its checkpoints, and its log, which is followed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import NotFound
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import find_experiment, find_trial, trial_at
from resolute_master.api.resources.cost import trial_cost
from resolute_master.domain.ids import TrialId
from resolute_master.domain.trial import Trial
from resolute_master.store.base import CheckpointQuery
from resolute_master.store.metric_chunks import Chunk
from resolute_web.page import Page, data, page, see
from resolute_web.series import column_of, lines_of, names_of, summaries_of, told_of
from resolute_web.trials import flat, lived, removed_checkpoints, row_of

MOST_CHARTS = 8
MOST_KEPT = 64
"""Trials whose charts are kept: some tens of kilobytes each."""

Chunks = Mapping[tuple[int, str], Sequence[Chunk]]
"""What the reports of a trial come to, by trial and group."""


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
        costs=await _costs(call, trial),
        checkpoints=sorted(checkpoints, key=lambda each: (-each.steps_completed, each.uuid)),
        removed=await removed_checkpoints(call.api, trial.experiment_id, trial.id),
        hyperparameters=flat(trial.hparams),
    )


async def _costs(call: Call, trial: Trial) -> Mapping[str, float] | None:
    """Cost of each part of the trial's time; None if no price is known."""
    row = await trial_cost(call.api, trial)
    return None if row is None or row.cost is None else row.costs


class Curves:
    """The charts of trials, kept while nothing was reported: a trial that many look at is drawn once a second and not for each."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[TrialId, str], tuple[Chunks, bytes]] = OrderedDict()

    async def answer(self, call: Call, trial: Trial) -> web.Response:
        """By the metric's name the charts of the page, or the one that is requested; each has the lines of all groups."""
        wanted = call.request.query.get("metric", "")
        chunks = await call.api.store.metric_chunks([trial.id])
        before = self._kept.pop((trial.id, wanted), None)
        drawn = before[1] if before is not None and before[0] == chunks else await _drawn(call, trial, chunks, wanted)
        self._kept[trial.id, wanted] = chunks, drawn
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return data(drawn)


async def _drawn(call: Call, trial: Trial, chunks: Chunks, wanted: str) -> bytes:
    experiment = await find_experiment(call.api, trial.experiment_id)
    told = await told_of(call.api, trial.id, chunks)
    names = [wanted] if wanted else names_of(told, experiment.metric)[:MOST_CHARTS]
    charts: dict[str, dict[str, Any]] = {name: {"title": name, "lines": []} for name in names}
    for group in dict.fromkeys(group for group, _ in told):
        own = [name for name in names if (group, name) in told]
        for name, points in (await lines_of(call.api, trial.id, group, own)).items():
            if points:
                charts[name]["lines"].append(column_of(group, points, begun=trial.started_at))
    return msgspec.json.encode({"charts": charts})


async def elsewhere(call: Call, trial: Trial) -> web.Response:
    """The address without the experiment."""
    return see(f"/det/experiments/{trial.experiment_id}/trials/{trial.id}")


_AT = "/det/experiments/{experimentId}/trials/{trialId}"


def pages() -> Sequence[Page]:
    return (
        Page("GET", _AT, Action.VIEW, find, overview),
        Page("GET", f"{_AT}/curves", Action.VIEW, find, Curves().answer),
        Page("GET", "/det/trials/{trialId}", Action.VIEW, trial_at("trialId"), elsewhere),
    )
