"""What an address asks of the list of experiments: the filter, the order and the columns, so that a view is a link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from multidict import MultiMapping

from resolute.errors import InvalidInput
from resolute.wire.states import ExperimentState
from resolute_master.api.http.call import number_in
from resolute_master.domain.ids import UserId
from resolute_master.store.search_filter import (
    Comparison,
    Field,
    Group,
    Hyperparameter,
    Kind,
    Metric,
    Operator,
    SearchQuery,
    Sort,
    Table,
    column_of,
)
from resolute_web.conditions import parse_conditions

NO_CONDITIONS = Group(any=False, parts=())
PER_PAGE = 50
PATH = "/det/experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One that can be chosen; `sort` is the column of the filter language that it is sorted by, empty where there is none."""

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
    Column(key="metric", title="Best metric", sort="searcherMetricsVal", number=True, usual=True),
    Column(key="trials", title="Trials", sort="numTrials", number=True, usual=True),
    Column(key="pool", title="Pool", sort="resourcePool", usual=True),
    Column(key="user", title="Owner", sort="user", usual=True),
    Column(key="started", title="Started", sort="startTime", usual=True),
    Column(key="duration", title="Duration", sort="duration", number=True, usual=True),
    Column(key="searcher", title="Searcher", sort="searcherType"),
    Column(key="project", title="Project"),
    Column(key="forked", title="Forked from", sort="forkedFrom", number=True),
    Column(key="checkpoints", title="Checkpoints", sort="checkpointCount", number=True),
    Column(key="checkpoint_size", title="Checkpoint size", sort="checkpointSize", number=True),
    Column(key="description", title="Description", sort="description"),
)
BY_KEY = {column.key: column for column in COLUMNS}

STATES: Mapping[str, tuple[ExperimentState, ...]] = {
    "active": (ExperimentState.ACTIVE,),
    "paused": (ExperimentState.PAUSED,),
    "stopping": tuple(state for state in ExperimentState if state.stopping),
    "completed": (ExperimentState.COMPLETED,),
    "canceled": (ExperimentState.CANCELED,),
    "error": (ExperimentState.ERROR,),
}


def value_column(key: str) -> Hyperparameter | Metric | None:
    """`hp.lr`, `validation.loss.min`; None for everything else."""
    try:
        found = column_of(key, Table.EXPERIMENTS, "column")
    except InvalidInput:
        return None
    return None if isinstance(found, Field) else found


def shown_column(key: str) -> Column:
    """One of our own, or of a hyperparameter or a metric, which is sorted by its own name."""
    return BY_KEY.get(key) or Column(key=key, title=key.removeprefix("hp."), sort=key, number=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an address asks for."""

    text: str = ""
    states: tuple[str, ...] = ()
    owner: str = ""
    label: str = ""
    project: str = ""
    pool: str = ""
    where: str = ""
    conditions: Group = NO_CONDITIONS
    archived: bool = False
    sort: str = "id"
    descending: bool = True
    columns: tuple[str, ...] = ()
    page: int = 1

    @classmethod
    def of(cls, query: MultiMapping[str]) -> Wanted:
        """Raises `InvalidInput` for what no list has."""
        sort = query.get("sort", "id")
        if not (BY_KEY[sort].sort if sort in BY_KEY else value_column(sort)):
            raise InvalidInput(f"sort: '{sort[:80]}' is no column that can be sorted by; use a column's title")
        states = tuple(name for name in query.getall("state", []) if name)
        unknown = [name for name in states if name not in STATES]
        if unknown:
            raise InvalidInput(f"state: '{unknown[0][:80]}' is not known; use {', '.join(STATES)}")
        where = query.get("where", "").strip()
        return cls(
            text=query.get("q", "").strip(),
            states=states,
            owner=query.get("owner", "").strip(),
            label=query.get("label", "").strip(),
            project=query.get("project", "").strip(),
            pool=query.get("pool", "").strip(),
            where=where,
            conditions=parse_conditions(where, Table.EXPERIMENTS, "where"),
            archived=query.get("archived", "") == "yes",
            sort=sort,
            descending=query.get("dir", "desc") != "asc",
            columns=tuple(name for name in query.getall("column", []) if name in BY_KEY or value_column(name)),
            page=max(1, number_in("page", query.get("page", "1"))),
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """Without a choice what is sorted by is shown too."""
        usual = tuple(column.key for column in COLUMNS if column.usual)
        return self.columns or (usual if self.sort in usual else (*usual, self.sort))

    @property
    def filtered(self) -> bool:
        asked = (self.text, self.states, self.owner, self.label, self.project, self.pool, self.where, self.archived)
        return any(asked)

    def fields(self, **changes: object) -> list[tuple[str, str]]:
        """Names and values of the address of the same list with something else; without what is usual."""
        values: list[tuple[str, object]] = [
            ("q", self.text),
            *(("state", state) for state in self.states),
            ("owner", self.owner),
            ("label", self.label),
            ("project", self.project),
            ("pool", self.pool),
            ("where", self.where),
            ("archived", "yes" if self.archived else ""),
            ("sort", self.sort if self.sort != "id" else ""),
            ("dir", "asc" if not self.descending else ""),
            *(("column", column) for column in self.columns),
            ("page", self.page if self.page > 1 else ""),
        ]
        kept = [(name, value) for name, value in values if name not in changes]
        return [(name, str(value)) for name, value in [*kept, *changes.items()] if value not in ("", None)]

    def address(self, **changes: object) -> str:
        asked = urlencode(self.fields(**changes))
        return PATH + (f"?{asked}" if asked else "")

    def query(self, usernames: Mapping[UserId, str]) -> SearchQuery:
        """The query to the store."""
        return SearchQuery(
            filter=Group(any=False, parts=(*self._filters(), self.conditions)),
            sort=(Sort(column=_sorted_by(self.sort), descending=self.descending),),
            project_id=number_in("project", self.project) if self.project else None,
            archived=None if self.archived else False,
            offset=(self.page - 1) * PER_PAGE,
            limit=PER_PAGE,
            usernames={int(id_): name for id_, name in usernames.items()},
        )

    def _filters(self) -> Sequence[Comparison | Group]:
        found: list[Comparison | Group] = []
        if self.text:
            found.append(_field("name", Operator.CONTAINS, self.text))
        if self.owner:
            found.append(_field("user", Operator.EQUAL, self.owner))
        if self.label:
            found.append(_field("tags", Operator.EQUAL, self.label))
        if self.pool:
            found.append(_field("resourcePool", Operator.EQUAL, self.pool))
        if self.states:
            states = [state for name in self.states for state in STATES[name]]
            found.append(Group(any=True, parts=tuple(_field("state", Operator.EQUAL, each.value) for each in states)))
        return found


def _field(name: str, operator: Operator, value: str) -> Comparison:
    kinds = {"tags": Kind.LABELS, "state": Kind.STATE}
    return Comparison(column=Field(name=name, kind=kinds.get(name, Kind.TEXT)), operator=operator, value=value)


def _sorted_by(key: str) -> Any:
    return column_of(BY_KEY[key].sort if key in BY_KEY else key, Table.EXPERIMENTS, "sort")


# ------------------------------------------------------------------------------------------------- another condition

OPERATORS: Mapping[str, str] = {
    "<": "<",
    "<=": "≤",
    "=": "=",
    "!=": "≠",
    ">=": "≥",
    ">": ">",
    "contains": "contains",
    "not contains": "does not contain",
    "is empty": "is empty",
    "is not empty": "is not empty",
}
_PLAIN = re.compile(r'[^\s<>=!()"]+')
_WORDS = ("and", "or", "not", "is", "empty", "contains")


def one_more(where: str, column: str, operator: str, value: str) -> str:
    """The conditions with another one, which must hold as well. Raises `InvalidInput` for an unknown operator."""
    if operator not in OPERATORS:
        raise InvalidInput(f"operator: '{operator[:80]}' is not known; use one of {', '.join(OPERATORS)}")
    words = [_written(column), operator]
    if not operator.endswith("empty"):
        words.append(_written(value))
    condition = " ".join(words)
    if not where:
        return condition
    return f"({where}) and {condition}" if re.search(r"\bor\b", where, re.IGNORECASE) else f"{where} and {condition}"


def _written(text: str) -> str:
    """As a person writes it, between quotation marks where it must be."""
    text = text.strip()
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else f'"{text}"'
