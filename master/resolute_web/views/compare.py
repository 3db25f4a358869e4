"""Trials beside each other, of one experiment or of several: their curves in one chart, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing, number_in
from resolute_master.api.reading.finders import find_experiment, find_trial
from resolute_master.api.reading.showing import show_experiment
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from resolute_master.store.base import TrialQuery
from resolute_web.page import Page, data, page
from resolute_web.series import PLACES, Summaries, column_of, line_of, names_of, summaries_of
from resolute_web.trials import TrialRow, best_first, flat, lived, row_of, rows_of

MOST = 20
"""Trials of one comparison: more are no picture any more."""

MOST_SEARCHED = 1000
POINTS_OF_A_CURVE = 400
ABSENT = object()

_LEFT_OUT = ("hyperparameters", "name", "workspace", "project")
"""Keys of a configuration that are shown elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One column of the comparison."""

    experiment: Experiment
    row: TrialRow
    goodput: float | None

    @property
    def trial(self) -> Trial:
        return self.row.trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of a table: a key and its value of each trial; `same` where they are equal."""

    name: str
    values: Sequence[Any]
    same: bool


async def _chosen(call: Call) -> Sequence[tuple[Experiment, TrialRow]]:
    """The trials of the address, and of each experiment its best."""
    trials = [number_in("trial", text) for text in call.request.query.getall("trial", ())]
    experiments = [number_in("experiment", text) for text in call.request.query.getall("experiment", ())]
    if len(trials) + len(experiments) > MOST:
        raise InvalidInput(f"trial: {len(trials) + len(experiments)} are over the limit of {MOST}; choose fewer")
    found: dict[int, tuple[Experiment, TrialRow]] = {}
    for id_ in experiments:
        experiment = await find_experiment(call.api, id_)
        rows = await rows_of(call.api, experiment, TrialQuery(experiment_id=experiment.id, limit=MOST_SEARCHED))
        for row in best_first(rows.rows, experiment)[:1]:
            found.setdefault(row.trial.id, (experiment, row))
    for id_ in trials:
        trial = await find_trial(call.api, id_)
        experiment = await find_experiment(call.api, trial.experiment_id)
        found.setdefault(trial.id, (experiment, row_of(call.api, experiment, trial)))
    return tuple(found.values())


async def compare(call: Call, _: None) -> web.Response:
    chosen = await _chosen(call)
    sides = [await _side(call, experiment, row) for experiment, row in chosen]
    told = [await summaries_of(call.api, side.trial.id) for side in sides]
    metrics = names_of(chain.from_iterable(told), sides[0].experiment.metric if sides else "")
    return await page(
        call,
        "compare.html",
        title="Compare trials",
        section="Experiments",
        sides=sides,
        metrics=metrics,
        wanted=call.request.query.get("metric", "") or (metrics[0] if metrics else ""),
        query=_query(sides),
        hyperparameters=_table([flat(side.trial.hparams) for side in sides]),
        settings=_table([await _settings(call, side.experiment) for side in sides]),
        summaries=_summaries(told),
    )


async def _side(call: Call, experiment: Experiment, row: TrialRow) -> Side:
    life = await lived(call.api, row.trial)
    return Side(experiment=experiment, row=row, goodput=None if life is None else life.goodput)


def _query(sides: Sequence[Side]) -> str:
    return "&".join(f"trial={side.trial.id}" for side in sides)


async def _settings(call: Call, experiment: Experiment) -> dict[str, Any]:
    """As every user may read it, with masks for secrets."""
    shown = await show_experiment(call.api, experiment)
    return flat({key: value for key, value in (shown.config or {}).items() if key not in _LEFT_OUT})


def _table(columns: Sequence[Mapping[str, Any]]) -> Sequence[Line]:
    """What differs first."""
    names = sorted({name for column in columns for name in column})
    lines = [_line(name, [column.get(name, ABSENT) for column in columns]) for name in names]
    return sorted(lines, key=lambda line: (line.same, line.name))


def _line(name: str, values: Sequence[Any]) -> Line:
    same = all(type(value) is type(values[0]) and value == values[0] for value in values)
    return Line(name=name, values=[None if value is ABSENT else value for value in values], same=same)


def _summaries(told: Sequence[Summaries]) -> Sequence[Line]:
    """The last value of each metric of each group."""
    keys = sorted({key for each in told for key in each if key[1] not in PLACES}, key=lambda key: (key[1], key[0]))
    return [_line(f"{name}, {group}", [_last(each, group, name) for each in told]) for group, name in keys]


def _last(told: Summaries, group: str, name: str) -> float | None:
    found = told.get((group, name))
    return None if found is None else found.last


async def curves(call: Call, _: None) -> web.Response:
    """One metric of every trial, for the chart: of validation where it was validated, else as it was reported."""
    wanted = call.request.query.get("metric", "")
    found = []
    for place, (experiment, row) in enumerate(await _chosen(call)):
        for group in _groups(await summaries_of(call.api, row.trial.id), wanted):
            points = await line_of(call.api, row.trial.id, group, wanted, POINTS_OF_A_CURVE)
            label = f"{experiment.config['name']}, trial {row.trial.id}"
            found.append(column_of(label, points, begun=row.trial.started_at, place=place))
    return data(msgspec.json.encode({"title": wanted, "lines": found}))


def _groups(told: Summaries, name: str) -> Iterator[str]:
    """The group that is drawn: one line a trial."""
    groups = [group for group, each in told if each == name]
    yield from (["validation"] if "validation" in groups else groups[:1])


PAGES = (
    Page("GET", "/det/compare", Action.VIEW, nothing, compare),
    Page("GET", "/det/compare/curves", Action.VIEW, nothing, curves),
)
