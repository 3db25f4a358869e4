"""One trial: its curves, where its time went, its checkpoints, and its log, which is followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import NotFound, ResoluteError
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, number_in
from resolute_master.api.finders import find_experiment, find_trial, trial_at
from resolute_master.api.logs import lines_of as log_lines_of
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.store.base import CheckpointQuery, LogQuery
from resolute_web.page import HEADERS, Page, data, page, see
from resolute_web.series import Lines, column_of, lines_of, summary, thinned
from resolute_web.trials import flat, lived, row_of

MOST_CHARTS = 8
TAIL = 1000
"""Lines of a log that a page begins with."""

PLACES = ("epoch", "epochs", "batches")
"""Reported beside metrics: where on the axis a report is, which makes no curve."""


async def _find(call: Call) -> Trial:
    """Under its own experiment only."""
    trial = await find_trial(call.api, call.number("trialId"))
    if trial.experiment_id != call.number("experimentId"):
        raise NotFound("trial", str(trial.id), f"it belongs to experiment {trial.experiment_id}")
    return trial


async def _tabbed(call: Call, trial: Trial, tab: str, template: str, **values: Any) -> web.Response:
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
    lines = await _lines(call, trial)
    checkpoints = await call.api.store.checkpoints(CheckpointQuery(trial_id=trial.id))
    names = _charted(lines, experiment)
    return await _tabbed(
        call,
        trial,
        "",
        "trial.html",
        charts=names[:MOST_CHARTS],
        uncharted=names[MOST_CHARTS:],
        summaries=[summary(group, name, points) for (group, name), points in lines.items()],
        life=await lived(call.api, trial),
        checkpoints=sorted(checkpoints, key=lambda each: (-each.steps_completed, each.uuid)),
        hyperparameters=flat(trial.hparams),
    )


async def _lines(call: Call, trial: Trial) -> Lines:
    """In a thread: a trial may have reported a hundred thousand times."""
    reports = await call.api.store.metrics(trial.id)
    return await asyncio.to_thread(lines_of, reports)


def _charted(lines: Lines, experiment: Experiment) -> list[str]:
    """Names of metrics, that of the searcher first."""
    names = {name for _, name in lines if name not in PLACES}
    return sorted(names, key=lambda name: (name != experiment.metric, name))


async def curves(call: Call, trial: Trial) -> web.Response:
    """The charts of the page, by the metric's name, or of the one that is asked for; each has the lines of all groups."""
    experiment = await find_experiment(call.api, trial.experiment_id)
    lines = await _lines(call, trial)
    wanted = call.request.query.get("metric", "")
    names = [wanted] if wanted else _charted(lines, experiment)[:MOST_CHARTS]
    return data(await asyncio.to_thread(_drawn, lines, names, trial))


def _drawn(lines: Lines, names: Sequence[str], trial: Trial) -> bytes:
    charts = {
        name: {
            "title": name,
            "lines": [
                column_of(group, thinned(points), begun=trial.started_at)
                for (group, each), points in lines.items()
                if each == name
            ],
        }
        for name in names
    }
    return msgspec.json.encode({"charts": charts})


async def elsewhere(call: Call, trial: Trial) -> web.Response:
    """The address without the experiment."""
    return see(f"/det/experiments/{trial.experiment_id}/trials/{trial.id}")


# ----------------------------------------------------------------------------------------------------------------- log


def _query(call: Call, trial: Trial, **more: Any) -> LogQuery:
    return LogQuery(task_ids=(trial.task_id,), text=call.request.query.get("q", "").strip(), **more)


async def log(call: Call, trial: Trial) -> web.Response:
    """The end of the log; a script appends what comes."""
    found = await call.api.store.logs(_query(call, trial, limit=TAIL, descending=True))
    return await _tabbed(
        call,
        trial,
        "logs",
        "trial_logs.html",
        lines=[_shown(record) for record in reversed(found)],
        last=found[0].id if found else 0,
        full=len(found) == TAIL,
        tail=TAIL,
        text=call.request.query.get("q", "").strip(),
    )


def _shown(record: LogRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "at": record.at.isoformat(),
        "level": record.level.lower(),
        "rank": record.rank,
        "text": record.log.rstrip("\n"),
    }


async def follow(call: Call, trial: Trial) -> web.StreamResponse:
    """Lines after the one that the page or the browser had last, as server-sent events, until the trial is over."""
    after = call.request.headers.get("Last-Event-ID") or call.request.query.get("after", "0")
    query = _query(call, trial, after_id=number_in("after", after))
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(call.request)
    try:
        async with aclosing(log_lines_of(call, query, trial, _shown, follow=True)) as lines:
            await _send(call, response, lines)
        await response.write(b"event: end\ndata: end\n\n")
    except (ConnectionResetError, ResoluteError):
        pass  # the tab is gone, or its session: it asks again, and is told then
    return response


async def _send(call: Call, response: web.StreamResponse, lines: AsyncGenerator[Any, None]) -> None:
    async for line in lines:
        call.admit_again()
        await response.write(b"event: line\nid: %d\ndata: %s\n\n" % (line["id"], msgspec.json.encode(line)))


_AT = "/det/experiments/{experimentId}/trials/{trialId}"

PAGES: Sequence[Page] = (
    Page("GET", _AT, Action.VIEW, _find, overview),
    Page("GET", f"{_AT}/curves", Action.VIEW, _find, curves),
    Page("GET", f"{_AT}/logs", Action.VIEW, _find, log),
    Page("GET", f"{_AT}/logs/follow", Action.VIEW, _find, follow),
    Page("GET", "/det/trials/{trialId}", Action.VIEW, trial_at("trialId"), elsewhere),
)
