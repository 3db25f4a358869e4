"""One experiment: how it goes, its trials, its configuration, and what may be done to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import NotFound
from resolute.wire.rest.why import ExplainJobResponse
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Finder
from resolute_master.api.reading.finders import experiment_at, find_job
from resolute_master.api.reading.showing import show_experiment
from resolute_master.api.resources.cost import experiment_cost
from resolute_master.api.resources.experiment_search import show_search
from resolute_master.api.resources.why import explain_job
from resolute_master.domain.experiment import Experiment
from resolute_master.store.base import TrialQuery
from resolute_web import actions, configuration, rungs, search_pictures
from resolute_web.axes import MOST_WORDS, choices_of, fits
from resolute_web.forms import read_form
from resolute_web.page import Page, data, page, see
from resolute_web.series import column_of, line_of
from resolute_web.trials import TrialRow, best_first, flat, lived, removed_checkpoints, rows_of, searched

MOST_TRIALS = 1000
"""Rows of one page of trials, and points of a picture of a search."""

MOST_CURVES = 30
"""Lines of one chart: the best trials."""

POINTS_OF_A_CURVE = 300

_one: Finder = experiment_at("experimentId")


@dataclass(frozen=True, slots=True)
class Tab:
    key: str
    title: str


async def tabbed(call: Call, experiment: Experiment, tab: str, template: str, **values: Any) -> web.Response:
    """A tab with the experiment's head above it."""
    shown = await show_experiment(call.api, experiment)
    return await page(
        call,
        template,
        title=f"{shown.name} · experiment {experiment.id}",
        section="Experiments",
        topics=(f"experiment:{experiment.id}",),
        experiment=shown,
        domain=experiment,
        tabs=_tabs(shown.num_trials),
        tab=tab,
        buttons=await actions.buttons_of(call, experiment),
        said=_said(call),
        **values,
    )


def _tabs(trials: int) -> Sequence[Tab]:
    found = [Tab("", "Overview")]
    if trials > 1:
        found += [Tab("trials", "Trials"), Tab("search", "Search")]
    return [*found, Tab("configuration", "Configuration"), Tab("code", "Code")]


def _said(call: Call) -> str:
    """What came of the form before; only of what we say ourselves."""
    verb = actions.BY_NAME.get(call.request.query.get("did", ""))
    return "" if verb is None else verb.done


# ----------------------------------------------------------------------------------------------------------- overview


async def overview(call: Call, experiment: Experiment) -> web.Response:
    found = await rows_of(call.api, experiment, TrialQuery(experiment_id=experiment.id, limit=MOST_TRIALS))
    best = best_first(found.rows, experiment)
    return await tabbed(
        call,
        experiment,
        "",
        "experiment.html",
        trials=best[:10],
        total=found.total,
        names=searched(found.rows)[:6],
        flat=flat,
        explained=await _explained(call, experiment),
        cost=await experiment_cost(call.api, experiment),
        lives=await _lives(call, found.rows) if found.total == 1 else (),
        settings=experiment.settings,
        removed=await removed_checkpoints(call.api, experiment.id),
    )


async def _explained(call: Call, experiment: Experiment) -> ExplainJobResponse | None:
    """Why it waits; None while something of it runs, or nothing should."""
    if experiment.state is not ExperimentState.ACTIVE or experiment.unmanaged:
        return None
    explained = await explain_job(call, await find_job(call.api, "jobId", experiment.job_id))
    return explained if explained.allocation_id else None


async def _lives(call: Call, rows: Sequence[TrialRow]) -> Sequence[object]:
    """Each trial with the parts of its time."""
    found = []
    for row in rows:
        life = await lived(call.api, row.trial)
        if life is not None:
            found.append((row, life))
    return found


async def curves(call: Call, experiment: Experiment) -> web.Response:
    """The searcher's metric of the best trials by step, for the chart."""
    found = await rows_of(call.api, experiment, TrialQuery(experiment_id=experiment.id, limit=MOST_TRIALS))
    group, name = call.request.query.get("group", "validation"), call.request.query.get("metric", experiment.metric)
    lines = []
    for number, row in enumerate(best_first(found.rows, experiment)[:MOST_CURVES]):
        points = await line_of(call.api, row.trial.id, group, name, POINTS_OF_A_CURVE)
        if points:
            lines.append(column_of(f"trial {row.trial.id}", points, best=number == 0, begun=row.trial.started_at))
    return data(msgspec.json.encode({"title": f"{group} {name}", "lines": lines}))


# --------------------------------------------------------------------------------------------------- trials and search


async def trials(call: Call, experiment: Experiment) -> web.Response:
    sort = call.request.query.get("sort", "")
    descending = call.request.query.get("dir") == "desc"
    query = TrialQuery(experiment_id=experiment.id, limit=MOST_TRIALS, sort_by=sort or "id", descending=descending)
    found = await rows_of(call.api, experiment, query)
    rows = found.rows if sort else best_first(found.rows, experiment)
    return await tabbed(
        call,
        experiment,
        "trials",
        "experiment_trials.html",
        rows=rows,
        total=found.total,
        names=searched(found.rows),
        flat=flat,
        sort=sort,
        descending=descending,
    )


async def search(call: Call, experiment: Experiment) -> web.Response:
    found = await rows_of(call.api, experiment, TrialQuery(experiment_id=experiment.id, limit=MOST_TRIALS))
    names, chosen = searched(found.rows), choices_of(call.request.query)
    fitting = [row for row in found.rows if fits(row, chosen)]
    return await tabbed(
        call,
        experiment,
        "search",
        "experiment_search.html",
        rows=best_first(fitting, experiment),
        total=found.total,
        chosen=bool(chosen),
        most_words=MOST_WORDS,
        names=names,
        flat=flat,
        parallel=search_pictures.parallel(found.rows, names, experiment, chosen),
        scatters=search_pictures.scatters(found.rows, names, experiment),
        brackets=() if experiment.unmanaged else rungs.brackets_of(await show_search(call, experiment)),
    )


# ------------------------------------------------------------------------------------------------------ configuration


async def show_configuration(call: Call, experiment: Experiment) -> web.Response:
    shown = await show_experiment(call.api, experiment)
    return await tabbed(
        call,
        experiment,
        "configuration",
        "experiment_configuration.html",
        lines=configuration.lines_of(shown.config or {}, shown.original_config),
        original=shown.original_config,
    )


# ------------------------------------------------------------------------------------------------------------ changes


def _verb(call: Call) -> actions.Verb:
    name = call.text("verb")
    if name not in actions.BY_NAME:
        raise NotFound("action", name, f"use one of {', '.join(actions.BY_NAME)}")
    return actions.BY_NAME[name]


async def ask(call: Call, experiment: Experiment) -> web.Response:
    """The question before something that cannot be undone; what it is about, in words."""
    verb = _verb(call)
    return await page(
        call,
        "ask.html",
        title=f"{verb.label} experiment {experiment.id}?",
        section="Experiments",
        subject=experiment.config["name"],
        question=verb.question,
        symbol=verb.icon,
        button=f"{verb.label} experiment {experiment.id}",
        reason=await actions.reason_of(call, verb, experiment),
        path=f"/det/experiments/{experiment.id}/{verb.name}",
        back=f"/det/experiments/{experiment.id}",
    )


def _doing(verb: actions.Verb) -> Page:
    async def do(call: Call, experiment: Experiment) -> web.Response:
        await verb.do(call, experiment)
        if verb.name == "delete":
            return see("/det/experiments")
        back = (await read_form(call)).text("back")
        return see(back if back == "/det/experiments" else f"/det/experiments/{experiment.id}?did={verb.name}")

    return Page("POST", f"{_AT}/{verb.name}", verb.action, _one, do)


_AT = "/det/experiments/{experimentId}"


PAGES = (
    Page("GET", _AT, Action.VIEW, _one, overview),
    Page("GET", f"{_AT}/overview", Action.VIEW, _one, overview),
    Page("GET", f"{_AT}/curves", Action.VIEW, _one, curves),
    Page("GET", f"{_AT}/trials", Action.VIEW, _one, trials),
    Page("GET", f"{_AT}/search", Action.VIEW, _one, search),
    Page("GET", f"{_AT}/configuration", Action.VIEW, _one, show_configuration),
    Page("GET", f"{_AT}/ask/{{verb}}", Action.VIEW, _one, ask),
    *(_doing(verb) for verb in actions.VERBS),
)
