"""The list of experiments: filtered, sorted and arranged by its address, so that a view is a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.experiments import Experiment as WireExperiment
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing, number_in
from resolute_master.api.reading.finders import user_named
from resolute_master.api.reading.showing import show_experiments
from resolute_master.domain.user import User
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import ExperimentQuery
from resolute_web import actions
from resolute_web.page import Page, page

PER_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One that can be chosen; `sort` is how the store calls it, empty where it cannot sort by it."""

    key: str
    title: str
    sort: str = ""
    number: bool = False
    usual: bool = False
    """Shown unless other columns were chosen."""


COLUMNS: Sequence[Column] = (
    Column(key="id", title="ID", sort="id", number=True, usual=True),
    Column(key="name", title="Name", sort="name", usual=True),
    Column(key="state", title="State", sort="state", usual=True),
    Column(key="progress", title="Progress", sort="progress", usual=True),
    Column(key="metric", title="Best metric", sort="searcher_metric_val", number=True, usual=True),
    Column(key="trials", title="Trials", sort="num_trials", number=True, usual=True),
    Column(key="pool", title="Pool", sort="resource_pool", usual=True),
    Column(key="user", title="Owner", sort="user", usual=True),
    Column(key="started", title="Started", sort="start_time", usual=True),
    Column(key="duration", title="Duration", number=True, usual=True),
    Column(key="searcher", title="Searcher"),
    Column(key="project", title="Project", sort="project_id"),
    Column(key="forked", title="Forked from", sort="forked_from", number=True),
    Column(key="checkpoints", title="Checkpoints", sort="checkpoint_count", number=True),
    Column(key="checkpoint_size", title="Checkpoint size", sort="checkpoint_size", number=True),
    Column(key="description", title="Description", sort="description"),
)
BY_KEY = {column.key: column for column in COLUMNS}
HYPERPARAMETER = "hp."

STATES: Mapping[str, tuple[ExperimentState, ...]] = {
    "active": (ExperimentState.ACTIVE,),
    "paused": (ExperimentState.PAUSED,),
    "stopping": tuple(state for state in ExperimentState if state.stopping),
    "completed": (ExperimentState.COMPLETED,),
    "canceled": (ExperimentState.CANCELED,),
    "error": (ExperimentState.ERROR,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an address asks for."""

    text: str = ""
    states: tuple[str, ...] = ()
    owner: str = ""
    label: str = ""
    project: str = ""
    archived: bool = False
    sort: str = "id"
    descending: bool = True
    columns: tuple[str, ...] = ()
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, Any], texts: Mapping[str, Sequence[str]]) -> Wanted:
        """Raises `InvalidInput` for what no list has."""
        sort = query.get("sort", "id")
        if sort not in BY_KEY or not BY_KEY[sort].sort:
            raise InvalidInput(f"sort: '{sort[:80]}' is no column that can be sorted by; use a column's title")
        states = tuple(name for name in texts.get("state", ()) if name)
        unknown = [name for name in states if name not in STATES]
        if unknown:
            raise InvalidInput(f"state: '{unknown[0][:80]}' is not known; use {', '.join(STATES)}")
        return cls(
            text=query.get("q", "").strip(),
            states=states,
            owner=query.get("owner", "").strip(),
            label=query.get("label", "").strip(),
            project=query.get("project", "").strip(),
            archived=query.get("archived", "") == "yes",
            sort=sort,
            descending=query.get("dir", "desc") != "asc",
            columns=tuple(
                name for name in texts.get("column", ()) if name in BY_KEY or name.startswith(HYPERPARAMETER)
            ),
            page=max(1, number_in("page", query.get("page", "1"))),
        )

    @property
    def shown(self) -> tuple[str, ...]:
        return self.columns or tuple(column.key for column in COLUMNS if column.usual)

    @property
    def filtered(self) -> bool:
        return bool(self.text or self.states or self.owner or self.label or self.project or self.archived)

    def address(self, **changes: object) -> str:
        """Of the same list with something else; without what is usual."""
        values: list[tuple[str, object]] = [
            ("q", self.text),
            *(("state", state) for state in self.states),
            ("owner", self.owner),
            ("label", self.label),
            ("project", self.project),
            ("archived", "yes" if self.archived else ""),
            ("sort", self.sort if self.sort != "id" else ""),
            ("dir", "asc" if not self.descending else ""),
            *(("column", column) for column in self.columns),
            ("page", self.page if self.page > 1 else ""),
        ]
        kept = [(name, value) for name, value in values if name not in changes]
        asked = urlencode([(n, str(v)) for n, v in [*kept, *changes.items()] if v not in ("", None)])
        return "/det/experiments" + (f"?{asked}" if asked else "")


async def listed(call: Call, _: None) -> web.Response:
    query = call.request.query
    wanted = Wanted.of(query, {name: query.getall(name) for name in query})
    stored = _stored(call, wanted)
    found = None if stored is None else await call.api.store.page_experiments(stored)
    rows = () if found is None else await show_experiments(call.api, found.rows)
    return await page(
        call,
        "experiments.html",
        title="Experiments",
        section="Experiments",
        topics=("experiments",),
        wanted=wanted,
        rows=rows,
        total=0 if found is None else found.total,
        per_page=PER_PAGE,
        columns=[_column(key) for key in wanted.shown],
        every_column=COLUMNS,
        hyperparameters=_hyperparameters(rows),
        value_of=value_of,
        verbs=actions.VERBS,
        states=STATES,
        owners=[user.username for user in call.api.engine.state.all(User)],
        projects=[(one.id, one.name) for one in workspaces.projects(call.api.engine.state)],
    )


def _stored(call: Call, wanted: Wanted) -> ExperimentQuery | None:
    """None when nothing can be found: an owner whom nobody knows."""
    owner = user_named(call.api, wanted.owner) if wanted.owner else None
    if wanted.owner and owner is None:
        return None
    return ExperimentQuery(
        offset=(wanted.page - 1) * PER_PAGE,
        limit=PER_PAGE,
        archived=None if wanted.archived else False,
        states=tuple(state for name in wanted.states for state in STATES[name]),
        owners=() if owner is None else (owner.id,),
        labels=(wanted.label,) if wanted.label else (),
        name=wanted.text,
        project_id=number_in("project", wanted.project) if wanted.project else None,
        sort_by=BY_KEY[wanted.sort].sort,
        descending=wanted.descending,
    )


def _column(key: str) -> Column:
    return BY_KEY.get(key) or Column(key=key, title=key.removeprefix(HYPERPARAMETER), number=True)


def _hyperparameters(rows: Sequence[WireExperiment]) -> list[str]:
    """Of the experiments of this page, to be chosen as columns."""
    return sorted({name for row in rows for name in row.hyperparameters or {}})


def value_of(row: WireExperiment, column: str) -> object:
    """Of a hyperparameter its constant, or its range in words."""
    wanted: object = row.hyperparameters
    for part in column.removeprefix(HYPERPARAMETER).split("."):
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


PAGES = (Page("GET", "/det/experiments", Action.VIEW, nothing, listed),)
