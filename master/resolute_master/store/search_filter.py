"""The filter language of searches: JSON text into a typed tree, which each store carries out in its own way.

    {"filterGroup": {"kind": "group", "conjunction": "and", "children": [
        {"kind": "field", "columnName": "hp.lr", "operator": "<", "value": 0.1, "type": "COLUMN_TYPE_NUMBER"},
        {"kind": "group", "conjunction": "or", "children": [...]}]},
     "showArchived": false}

Columns are those of `FIELDS`, `hp.<name>` for a hyperparameter (`.` between the names of nested ones), and
`<group>.<metric>.<last|min|max|mean>` for a metric of an experiment's best trial, or of a run.

What does not apply to a value, or has none, does not fit, save where the absence of something is requested: `notContains` and
`isEmpty`. Errors name the place in the text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from resolute.errors import InvalidInput

MAX_DEPTH = 10
MAX_FIELDS = 100
"""Most fields of one filter: more than a user writes, and few enough for any database."""
MAX_SORTS = 10


class Table(StrEnum):
    """What is searched."""

    EXPERIMENTS = "experiments"
    RUNS = "runs"


class Kind(StrEnum):
    """What a column holds."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "date"
    STATE = "state"
    LABELS = "labels"


class Operator(StrEnum):
    """How a value is compared."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    NOT_CONTAINS = "notContains"
    IS_EMPTY = "isEmpty"
    NOT_EMPTY = "notEmpty"


ORDERED = (Operator.EQUAL, Operator.NOT_EQUAL, Operator.LESS, Operator.AT_MOST, Operator.GREATER, Operator.AT_LEAST)
TEXTUAL = (Operator.EQUAL, Operator.NOT_EQUAL, Operator.CONTAINS, Operator.NOT_CONTAINS)
PRESENCE = (Operator.IS_EMPTY, Operator.NOT_EMPTY)
_ALLOWED: Mapping[Kind, tuple[Operator, ...]] = {
    Kind.NUMBER: (*ORDERED, *PRESENCE),
    Kind.DATE: (*ORDERED, *PRESENCE),
    Kind.TEXT: (*TEXTUAL, *PRESENCE),
    Kind.STATE: (Operator.EQUAL, Operator.NOT_EQUAL),
    Kind.LABELS: (*TEXTUAL, *PRESENCE),
}


class Statistic(StrEnum):
    """Which number of a metric."""

    LAST = "last"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of its own. Its kind is that of all its values."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameter:
    """By its name, nested ones by all their names."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number of a group's metric."""

    group: str
    name: str
    statistic: Statistic


Column = Field | Hyperparameter | Metric

FIELDS: Mapping[Table, Mapping[str, Kind]] = {
    Table.EXPERIMENTS: {
        "id": Kind.NUMBER,
        "name": Kind.TEXT,
        "description": Kind.TEXT,
        "tags": Kind.LABELS,
        "forkedFrom": Kind.NUMBER,
        "startTime": Kind.DATE,
        "endTime": Kind.DATE,
        "duration": Kind.NUMBER,
        "state": Kind.STATE,
        "progress": Kind.NUMBER,
        "user": Kind.TEXT,
        "resourcePool": Kind.TEXT,
        "searcherType": Kind.TEXT,
        "searcherMetric": Kind.TEXT,
        "searcherMetricsVal": Kind.NUMBER,
        "numTrials": Kind.NUMBER,
        "checkpointCount": Kind.NUMBER,
        "checkpointSize": Kind.NUMBER,
        "externalExperimentId": Kind.TEXT,
    },
    Table.RUNS: {
        "id": Kind.NUMBER,
        "experimentId": Kind.NUMBER,
        "experimentName": Kind.TEXT,
        "experimentDescription": Kind.TEXT,
        "tags": Kind.LABELS,
        "startTime": Kind.DATE,
        "endTime": Kind.DATE,
        "duration": Kind.NUMBER,
        "state": Kind.STATE,
        "experimentProgress": Kind.NUMBER,
        "user": Kind.TEXT,
        "resourcePool": Kind.TEXT,
        "searcherType": Kind.TEXT,
        "searcherMetric": Kind.TEXT,
        "searcherMetricsVal": Kind.NUMBER,
        "checkpointCount": Kind.NUMBER,
        "checkpointSize": Kind.NUMBER,
        "externalExperimentId": Kind.TEXT,
        "externalRunId": Kind.TEXT,
    },
}
"""The columns that every row has, by the names of the contract's clients; durations are seconds."""

Value = float | str | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`value` is a number for numbers, a time for dates, text for all else, and None where presence is requested.

    For a hyperparameter it is a number where one was given, else text.
    """

    column: Column
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All or any of its parts; an empty one fits everything."""

    any: bool
    parts: tuple[Comparison | Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """Rows without the value come last in both directions."""

    column: Column
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """`usernames` are those of all users by id: what the column `user` holds. `archived` None is both."""

    filter: Group
    sort: tuple[Sort, ...] = ()
    project_id: int | None = None
    archived: bool | None = None
    offset: int = 0
    limit: int = 100
    usernames: Mapping[int, str]


# -------------------------------------------------------------------------------------------------------------- parse


def parse_filter(text: str, table: Table) -> tuple[Group, bool]:
    """The tree, and whether archived rows are requested. Empty text fits everything that is not archived.

    Raises `InvalidInput` with the place of what is wrong.
    """
    if not text.strip():
        return Group(any=False, parts=()), False
    try:
        plain = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInput(f"filter: is no JSON{at}; send {{'filterGroup': {{...}}}}") from None
    if not isinstance(plain, dict):
        raise InvalidInput("filter: must be an object with 'filterGroup'")
    archived = plain.get("showArchived", False)
    if not isinstance(archived, bool):
        raise InvalidInput(f"filter.showArchived: {_shown(archived)} must be true or false")
    group = plain.get("filterGroup")
    root = Group(any=False, parts=()) if group is None else _Parser(table).group(group, "filter.filterGroup", 1)
    return root, archived


class _Parser:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._fields = 0

    def group(self, plain: Any, at: str, depth: int) -> Group:
        if depth > MAX_DEPTH:
            raise InvalidInput(f"{at}: groups are nested deeper than {MAX_DEPTH} levels")
        if not isinstance(plain, dict):
            raise InvalidInput(f"{at}: must be an object of kind 'group'")
        conjunction = plain.get("conjunction", "and")
        if conjunction not in ("and", "or"):
            raise InvalidInput(f"{at}.conjunction: {_shown(conjunction)} must be 'and' or 'or'")
        children = plain.get("children", [])
        if not isinstance(children, list):
            raise InvalidInput(f"{at}.children: must be a list")
        parts = [self._part(child, f"{at}.children[{number}]", depth) for number, child in enumerate(children)]
        return Group(any=conjunction == "or", parts=tuple(parts))

    def _part(self, plain: Any, at: str, depth: int) -> Comparison | Group:
        kind = plain.get("kind") if isinstance(plain, dict) else None
        if kind == "group":
            return self.group(plain, at, depth + 1)
        if kind != "field":
            raise InvalidInput(f"{at}.kind: {_shown(kind)} must be 'field' or 'group'")
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise InvalidInput(f"{at}: is over the limit of {MAX_FIELDS} fields of a filter")
        name = plain.get("columnName")
        if not isinstance(name, str):
            raise InvalidInput(f"{at}.columnName: {_shown(name)} must be the name of a column")
        column = column_of(name, self._table, f"{at}.columnName")
        return comparison_of(column, plain.get("operator"), plain.get("value"), at)


def comparison_of(column: Column, operator: Any, value: Any, at: str) -> Comparison:
    """Raises `InvalidInput` for an operator that the column does not have, and for a value that it cannot be compared with."""
    return _comparison(column, _operator(operator, column, f"{at}.operator"), value, f"{at}.value")


def _operator(plain: Any, column: Column, at: str) -> Operator:
    allowed = _ALLOWED[column.kind] if isinstance(column, Field) else _of_values(column)
    if plain not in [each.value for each in allowed]:
        raise InvalidInput(f"{at}: {_shown(plain)} cannot be applied to this column; use one of {', '.join(allowed)}")
    return Operator(plain)


def _of_values(column: Hyperparameter | Metric) -> tuple[Operator, ...]:
    return _ALLOWED[Kind.NUMBER] if isinstance(column, Metric) else tuple(Operator)


def _comparison(column: Column, operator: Operator, plain: Any, at: str) -> Comparison:
    """A field without a value, as a form has it that is not filled in, fits everything that has the column."""
    if operator in PRESENCE:
        return Comparison(column=column, operator=operator, value=None)
    kind = column.kind if isinstance(column, Field) else Kind.NUMBER if isinstance(column, Metric) else None
    if kind is Kind.NUMBER:
        return Comparison(column=column, operator=operator, value=_number(plain, at))
    if kind is Kind.DATE:
        return Comparison(column=column, operator=operator, value=_time(plain, at))
    if kind is None and operator in ORDERED and _is_number(plain):
        return Comparison(column=column, operator=operator, value=_number(plain, at))
    if kind is None and isinstance(plain, bool):
        plain = str(plain).lower()
    if kind is None and _is_number(plain):
        plain = format(plain, "g")
    if not isinstance(plain, str) or not plain:
        raise InvalidInput(f"{at}: {_shown(plain)} must be a text that is not empty")
    if operator not in TEXTUAL:
        raise InvalidInput(f"{at}: {_shown(plain)} must be a number for '{operator}'")
    return Comparison(column=column, operator=operator, value=plain)


def _is_number(plain: Any) -> bool:
    return isinstance(plain, int | float) and not isinstance(plain, bool)


def _number(plain: Any, at: str) -> float:
    try:
        number = float(plain) if _is_number(plain) or isinstance(plain, str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{at}: {_shown(plain)} must be a number")
    return number


def _time(plain: Any, at: str) -> datetime:
    try:
        found = datetime.fromisoformat(plain) if isinstance(plain, str) else None
        if found is not None:
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{at}: {_shown(plain)} must be a time such as 2026-01-31T08:00:00Z")


def column_of(name: str, table: Table, at: str) -> Column:
    """Raises `InvalidInput` for what no row has."""
    fields = FIELDS[table]
    if name in fields:
        return Field(name=name, kind=fields[name])
    prefix, dot, rest = name.partition(".")
    if prefix == "hp" and rest:
        return Hyperparameter(name=searchable(rest, at))
    metric, last_dot, statistic = rest.rpartition(".")
    if dot and last_dot and metric and prefix and statistic in [each.value for each in Statistic]:
        return Metric(group=searchable(prefix, at), name=searchable(metric, at), statistic=Statistic(statistic))
    raise InvalidInput(
        f"{at}: {_shown(name)} is no column; use hp.<name>, <group>.<metric>.<{'|'.join(Statistic)}>, "
        f"or one of {', '.join(fields)}"
    )


def searchable(name: str, at: str) -> str:
    """The same name. Names with these characters cannot be looked up in every database."""
    if any(character in name for character in '"\\\x00'):
        raise InvalidInput(
            f"{at}: {_shown(name)} has a quotation mark, a backslash or NUL, which a search cannot contain"
        )
    return name


def parse_sort(text: str, table: Table) -> tuple[Sort, ...]:
    """`<column>=asc,<column>=desc`. Raises `InvalidInput` with the place of what is wrong."""
    found: list[Sort] = []
    for number, part in enumerate(text.split(",") if text.strip() else []):
        at = f"sort[{number}]"
        name, _, direction = part.strip().rpartition("=")
        if not name or direction not in ("asc", "desc"):
            raise InvalidInput(f"{at}: {_shown(part)} must be <column>=asc or <column>=desc")
        found.append(Sort(column=column_of(name, table, at), descending=direction == "desc"))
    if len(found) > MAX_SORTS:
        raise InvalidInput(f"sort: has more than {MAX_SORTS} columns")
    return tuple(found)


def _shown(plain: Any) -> str:
    return repr(plain)[:80]


# --------------------------------------------------------------------------------------------------- hyperparameters


def flat_hyperparameters(hparams: Mapping[str, Any]) -> dict[str, tuple[float | None, str]]:
    """By name, nested ones with dots between their names, each as a number where it is one, and as text."""
    found: dict[str, tuple[float | None, str]] = {}
    left: list[tuple[str, Any]] = list(hparams.items())
    while left:
        name, value = left.pop()
        if isinstance(value, Mapping) and value:
            left += [(f"{name}.{inner}", each) for inner, each in value.items()]
            continue
        found[name] = value_of(value)
    return found


def value_of(value: Any) -> tuple[float | None, str]:
    """As a number where it is a finite one, and as text."""
    if isinstance(value, bool):
        return None, str(value).lower()
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        return (number if math.isfinite(number) else None), format(value, "g") if isinstance(value, float) else str(
            value
        )
    return None, value[:MAX_TEXT] if isinstance(value, str) else json.dumps(value)[:MAX_TEXT]


MAX_TEXT = 1_000
"""Characters of a hyperparameter by which it is found."""


def names_of_states(text: str) -> Sequence[str]:
    """The stored states that a text from a caller means: those of the contract, with or without `STATE_`."""
    name = text.upper().removeprefix("STATE_")
    return ("ACTIVE",) if name in ("QUEUED", "PULLING", "STARTING", "RUNNING") else (name,)
