"""The search space: constants, ranges, choices, and groups of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, RootModel, Tag, model_validator
from pydantic import ConfigDict as PydanticConfig

from resolute.config.base import ConfigModel, Integer, Number, PositiveInteger, TaggedUnion, broken_rule

_KINDS = TaggedUnion("type", ("const", "int", "double", "log", "categorical"))


class _Conditional(ConfigModel):
    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"when"})

    when: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)] | None = None
    """Choices (`categorical`), by dotted name from the top, and their values with which this hyperparameter exists."""


class ConstHyperparameter(_Conditional):
    """The same value in every trial. A value that is not a mapping may be written alone."""

    keeps_null: ClassVar[frozenset[str]] = frozenset({"val"})

    type: Literal["const"] = "const"
    val: Any
    """Any JSON value."""


class _Range(_Conditional):
    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"count", "when"})

    count: PositiveInteger | None = None
    """Number of points of grid search in the range."""


class IntHyperparameter(_Range):
    """A whole number, both ends included."""

    type: Literal["int"] = "int"
    minval: Integer
    """Smallest value."""
    maxval: Integer
    """Largest value."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_order(self.minval, self.maxval)
        return self


class DoubleHyperparameter(_Range):
    """A number, drawn uniformly."""

    type: Literal["double"] = "double"
    minval: Number
    """Smallest value."""
    maxval: Number
    """Largest value."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_order(self.minval, self.maxval)
        return self


class LogHyperparameter(_Range):
    """`base` to the power of a uniformly drawn exponent."""

    type: Literal["log"] = "log"
    minval: Number
    """Smallest exponent."""
    maxval: Number
    """Largest exponent."""
    base: Annotated[Number, Field(gt=0)]
    """What is raised to the exponent."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_order(self.minval, self.maxval)
        return self


class CategoricalHyperparameter(_Conditional):
    """One of a list of values."""

    type: Literal["categorical"] = "categorical"
    vals: list[Any]
    """Any JSON values."""


def _require_order(low: float, high: float) -> None:
    if not low < high:
        raise broken_rule(f"minval must be less than maxval; here minval is {low} and maxval is {high}")


def _member(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "<group>" if isinstance(value, HyperparameterGroup) else _KINDS.member(value)
    return _KINDS.member(value) if "type" in value else "<group>"


def _in_full(value: Any) -> Any:
    """Write a bare value as a constant; a mapping without `type` is a group."""
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping):
        return {"type": "const", "val": value}
    if value.get("type") is None:
        return {key: inner for key, inner in value.items() if key != "type"}
    return _KINDS.check(value)


class HyperparameterGroup(RootModel[dict[str, "Hyperparameter"]]):
    """Hyperparameters under one name; an empty group stays an empty group."""

    model_config = PydanticConfig(frozen=True)


Hyperparameter = Annotated[
    Annotated[ConstHyperparameter, Tag("<const>")]
    | Annotated[IntHyperparameter, Tag("<int>")]
    | Annotated[DoubleHyperparameter, Tag("<double>")]
    | Annotated[LogHyperparameter, Tag("<log>")]
    | Annotated[CategoricalHyperparameter, Tag("<categorical>")]
    | Annotated[HyperparameterGroup, Tag("<group>")],
    Discriminator(_member),
    BeforeValidator(_in_full),
]

HyperparameterGroup.model_rebuild()


def without_count(specification: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    """Paths of the ranges below `specification` (serialised form) that grid search could not divide.

    Lists are walked into as well: a specification inside one is most likely meant as one.
    """
    if isinstance(specification, list):
        return [found for index, one in enumerate(specification) for found in without_count(one, (*path, index))]
    if not isinstance(specification, dict):
        return []
    if specification.get("type") in ("int", "double", "log"):
        return [path] if specification.get("count") is None else []
    if specification.get("type") == "const":
        return without_count(specification.get("val"), path)
    return [found for key in sorted(specification) for found in without_count(specification[key], (*path, key))]


def condition_problems(space: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with the conditions of a search space (serialised form): the path of each, and what to do about it."""
    known = {".".join(path): spec for path, spec in _leaves(space, ())}
    problems: list[tuple[tuple[str, ...], str]] = []
    for path, spec in _leaves(space, ()):
        for name, values in (spec.get("when") or {}).items():
            where, other = (*path, "when", name), known.get(name)
            if other is None:
                problems.append(
                    (where, "is no hyperparameter; name one by its path from the top, such as optimizer.name")
                )
            elif other.get("type") != "categorical":
                problems.append((where, f"is of type {other.get('type')}; only on a categorical one may others depend"))
            elif unknown := [value for value in values if _text(value) not in map(_text, other["vals"])]:
                values_ = ", ".join(map(_text, other["vals"]))
                problems.append((where, f"never has the value {_text(unknown[0])}; its vals are {values_}"))
        if ".".join(path) in _reached(".".join(path), known):
            problems.append(((*path, "when"), "depends on itself; leave one of the conditions out"))
    return problems


def _reached(name: str, known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """All that a hyperparameter depends on."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for other in (known.get(ahead.pop()) or {}).get("when") or ():
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found


def _leaves(space: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for name in sorted(space):
        spec = space[name]
        if isinstance(spec, Mapping) and spec.get("type") is None:
            yield from _leaves(spec, (*above, name))
        elif isinstance(spec, Mapping):
            yield (*above, name), spec


def _text(value: Any) -> str:
    """As JSON: a truth value is no number."""
    return json.dumps(value, sort_keys=True)
