"""The list of experiments: filtered, sorted and arranged by its address, so that a view is a link."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from resolute.wire.rest.experiments import Experiment as WireExperiment
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_master.api.reading.showing import show_experiments
from resolute_master.api.render.summaries import summary
from resolute_master.api.resources.searching import found_experiments
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.lifecycle import workspaces
from resolute_master.store.metric_chunks import NUMBER, Chunk, NameSummary, whole
from resolute_master.store.search_filter import (
    FIELDS,
    Hyperparameter,
    Metric,
    Statistic,
    Table,
)
from resolute_web import actions
from resolute_web.conditions import EXAMPLE
from resolute_web.experiment_list import (
    COLUMNS,
    OPERATORS,
    PER_PAGE,
    STATES,
    Wanted,
    one_more,
    shown_column,
    value_column,
)
from resolute_web.page import Page, page, see
from resolute_web.trials import flat

Summaries = Mapping[tuple[str, str], NameSummary]
"""What a trial has reported, by group and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An experiment as the API shows it, with the values of the columns that were chosen beside the usual ones."""

    shown: WireExperiment
    values: Mapping[str, object]


async def listed(call: Call, _: None) -> web.Response:
    query, api = call.request.query, call.api
    wanted = Wanted.of(query)
    if query.get("add", "").strip():
        more = one_more(wanted.where, query["add"], query.get("operator", ""), query.get("value", ""))
        return see(wanted.address(where=more, page=""))
    names = {user.id: user.username for user in api.engine.state.all(User)}
    found, best = await found_experiments(api, wanted.query(names))
    shown = await show_experiments(api, found.rows)
    chunks = await api.store.metric_chunks([trial.id for trial in best.values()]) if best else {}
    reported = await asyncio.to_thread(_summaries, chunks)
    rows = [_row(each, wanted, best.get(each.id), reported) for each in shown]
    return await page(
        call,
        "experiments.html",
        title="Experiments",
        section="Experiments",
        topics=("experiments",),
        wanted=wanted,
        rows=rows,
        total=found.total,
        per_page=PER_PAGE,
        columns=[shown_column(key) for key in wanted.shown],
        every_column=COLUMNS,
        hyperparameters=_hyperparameters(rows, wanted),
        metrics=_metrics(reported, wanted),
        statistics=[each.value for each in Statistic],
        fields=sorted(FIELDS[Table.EXPERIMENTS]),
        operators=OPERATORS,
        example=EXAMPLE,
        verbs=actions.VERBS,
        states=STATES,
        owners=sorted(names.values(), key=str.lower),
        projects=[(one.id, one.name) for one in workspaces.projects(api.engine.state)],
        pools=sorted(api.engine.pools),
    )


# ------------------------------------------------------------------------------------------------------------- values


def _summaries(chunks: Mapping[tuple[int, str], Sequence[Chunk]]) -> Mapping[int, Summaries]:
    """By trial. In a thread: it adds up the chunks of a page of trials."""
    found: dict[int, dict[tuple[str, str], NameSummary]] = {}
    for (trial, group), of_group in chunks.items():
        together = whole(of_group)
        if together is not None:
            found.setdefault(trial, {}).update({(group, name): one for name, one in together.names.items()})
    return found


def _row(shown: WireExperiment, wanted: Wanted, best: Trial | None, reported: Mapping[int, Summaries]) -> Row:
    values: dict[str, object] = {}
    for key in wanted.shown:
        column = value_column(key)
        if isinstance(column, Hyperparameter):
            values[key] = value_of(shown, column.name, best)
        elif isinstance(column, Metric):
            own = {} if best is None else reported.get(best.id, {})
            values[key] = _statistic(own.get((column.group, column.name)), column.statistic)
    return Row(shown=shown, values=values)


def _statistic(found: NameSummary | None, statistic: Statistic) -> object:
    return None if found is None or found.type != NUMBER else summary(found)[statistic.value]


def value_of(row: WireExperiment, name: str, best: Trial | None) -> object:
    """Value of a hyperparameter in the best trial. Before there is one: the constant, or the range in words."""
    own = {} if best is None else flat(best.hparams)
    if name in own:
        return own[name]
    wanted: object = row.hyperparameters
    for part in name.split("."):
        wanted = wanted.get(part) if isinstance(wanted, Mapping) else None
    return hyperparameter(wanted)


def hyperparameter(value: object) -> object:
    """What a configuration says of one, as people write it: its value, or from where to where it is searched."""
    if not isinstance(value, Mapping) or "type" not in value:
        return value
    match value["type"]:
        case "const":
            return value.get("val")
        case "categorical":
            return ", ".join(str(each) for each in value.get("vals", ()))
        case "log":
            base = value.get("base", 10)
            return f"{base}^{value.get('minval')} … {base}^{value.get('maxval')}"
        case _:
            return f"{value.get('minval')} … {value.get('maxval')}"


# ------------------------------------------------------------------------------------------------------------ choices


def _hyperparameters(rows: Sequence[Row], wanted: Wanted) -> list[str]:
    """Hyperparameters that can be selected: those of the experiments on this page, and of the columns that are shown."""
    chosen = [found.name for key in wanted.columns if isinstance(found := value_column(key), Hyperparameter)]
    of_rows = (name for row in rows for name in _names(row.shown.hyperparameters or {}))
    return sorted({name for name in (*of_rows, *chosen) if value_column(f"hp.{name}") is not None})


def _names(hyperparameters: Mapping[str, object]) -> list[str]:
    """Nested ones by all their names; a range is one."""
    plain = {name: each for name, each in hyperparameters.items() if not _is_range(each)}
    nested = {
        f"{name}.{inner}"
        for name, each in plain.items()
        if isinstance(each, Mapping) and each
        for inner in _names(each)
    }
    single = [name for name, each in hyperparameters.items() if name not in plain or not isinstance(each, Mapping)]
    return [*single, *nested]


def _is_range(value: object) -> bool:
    return isinstance(value, Mapping) and "type" in value


def _metrics(reported: Mapping[int, Summaries], wanted: Wanted) -> list[str]:
    """Group and name, of the best trials of this page and of the columns that are shown."""
    chosen = [(found.group, found.name) for key in wanted.columns if isinstance(found := value_column(key), Metric)]
    of_rows = (key for own in reported.values() for key, one in own.items() if one.type == NUMBER)
    named = {f"{group}.{name}" for group, name in (*of_rows, *chosen)}
    return sorted(name for name in named if value_column(f"{name}.{Statistic.LAST.value}") is not None)


PAGES = (Page("GET", "/det/experiments", Action.VIEW, nothing, listed),)
