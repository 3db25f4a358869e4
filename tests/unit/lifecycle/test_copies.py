"""`domain.copies.replace` does what `dataclasses.replace` does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from resolute_master.domain import copies
from support.stores import a_trial, an_allocation


@dataclass(frozen=True, slots=True)
class Positive:
    number: int
    other: int = 0

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError(self.number)


@dataclass(frozen=True)
class Loose:
    number: int
    other: int = 0


@dataclass(frozen=True, slots=True)
class Slotted:
    number: int
    other: int = 0


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (Slotted(1), {}),
        (Slotted(1), {"number": 2, "other": 3}),
        (Positive(1), {"number": 2}),
        (Loose(1), {"other": 2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_copy_is_that_of_dataclasses(value: Any, changes: dict[str, Any]) -> None:
    before = dataclasses.replace(value)
    copy = copies.replace(value, **changes)
    assert copy == dataclasses.replace(value, **changes)
    assert type(copy) is type(value) and copy is not value
    assert value == before


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (an_allocation(agents=("a", "b")), {"run_id": 7, "history": ("x",)}),
        (an_allocation(), {}),
        (a_trial(), {"state": "COMPLETED", "hparams": {}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_so_is_that_of_an_entity(value: Any, changes: dict[str, Any]) -> None:
    before = structs.asdict(value)
    copy = copies.replace(value, **changes)
    assert structs.asdict(copy) == before | changes
    assert type(copy) is type(value) and copy is not value
    assert structs.asdict(value) == before


@pytest.mark.parametrize("value", [an_allocation(), Slotted(1), Loose(1)], ids=lambda value: type(value).__name__)
def test_a_field_that_is_not_there_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        copies.replace(value, no_such_field=1)


def test_what_a_class_checks_stays_checked() -> None:
    with pytest.raises(ValueError, match="-1"):
        copies.replace(Positive(1), number=-1)
