"""Training lengths in batches, records or epochs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Tag, model_validator

from resolute.config.base import ConfigModel, Count, broken_rule

Unit = Literal["batches", "records", "epochs"]
_UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")


class Length(ConfigModel):
    """Exactly one of the three units; zero means none."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset(_UNITS)

    batches: Count | None = None
    """Optimizer batches."""
    records: Count | None = None
    """Training records."""
    epochs: Count | None = None
    """Passes over the training data."""

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        given = [unit for unit in _UNITS if getattr(self, unit) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise broken_rule(f"must have exactly one of the keys batches, records, epochs; here it has {found}")
        return self

    @property
    def unit(self) -> Unit:
        return next(unit for unit in _UNITS if getattr(self, unit) is not None)

    @property
    def units(self) -> int:
        """The amount, in `unit`."""
        amount: int = getattr(self, self.unit)
        return amount


class PositiveLength(Length):
    """A length that is not zero."""

    @model_validator(mode="after")
    def _not_zero(self) -> Self:
        if self.units < 1:
            raise broken_rule("must be at least 1")
        return self


def _form(value: object) -> str:
    return "<number>" if isinstance(value, (int, float, str)) else "<object>"


SearcherLength = Annotated[
    Annotated[Count, Tag("<number>")] | Annotated[PositiveLength, Tag("<object>")], Discriminator(_form)
]
"""A length, or a bare number whose unit the training code knows."""
