"""The search space: constants, ranges, choices, and groups of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, RootModel, Tag, model_validator
from pydantic import ConfigDict as PydanticConfig

from resolute.config.base import ConfigModel, Integer, Number, PositiveInteger, TaggedUnion, broken_rule

_KINDS = TaggedUnion("type", ("const", "int", "double", "log", "categorical"))


class ConstHyperparameter(ConfigModel):
    """The same value in every trial. A value that is not a mapping may be written alone."""

    keeps_null: ClassVar[frozenset[str]] = frozenset({"val"})

    type: Literal["const"] = "const"
    val: Any
    """Any JSON value."""


class _Range(ConfigModel):
    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"count"})

    count: PositiveInteger | None = None
    """How many points grid search takes from the range."""


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


class CategoricalHyperparameter(ConfigModel):
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
