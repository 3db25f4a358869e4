"""How far to train, as the search says: one operation of the configured length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from resolute.core.train import TrainContext
from resolute.errors import FailedPrecondition, InvalidInput


class Unit(Enum):
    """What a length counts."""

    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


class SearcherMode(Enum):
    """Who asks. Every rank can work out the one operation by itself, so both modes need no communication."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


def parse_length(value: Any, key: str) -> tuple[int, Unit | None]:
    """A length of the configuration: a whole number, or an object with exactly one unit."""
    if isinstance(value, bool) or not isinstance(value, (int, Mapping)):
        raise InvalidInput(f"{key} is {value!r}; it must be a whole number or an object such as {{batches: 100}}")
    if isinstance(value, int):
        return value, None
    if len(value) != 1:
        raise InvalidInput(f"{key} is {dict(value)!r}; it must have exactly one of batches, records, epochs")
    name, amount = next(iter(value.items()))
    try:
        unit = Unit(name)
    except ValueError:
        raise InvalidInput(f"{key} has the unknown unit {name!r}; use batches, records or epochs") from None
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise InvalidInput(f"{key}.{name} is {amount!r}; it must be a whole number of at least 0")
    return amount, unit


class SearcherOperation:
    """Train until `length` in all, then report the searcher's metric as completed."""

    def __init__(self, length: int, train: TrainContext, *, chief: bool) -> None:
        self.length = length
        self._train = train
        self._chief = chief
        self._completed = False

    def report_progress(self, length: float) -> None:
        """How much of the length is done, in its own unit. Chief only."""
        self._require_chief()
        self._train.report_progress(min(1.0, length / self.length) if self.length else 1.0)

    def report_completed(self, searcher_metric: float) -> None:
        """Chief only, once. The search itself reads the validation metrics; this ends the operation."""
        self._require_chief()
        if self._completed:
            raise FailedPrecondition("this operation has already been reported as completed")
        self._completed = True

    @property
    def completed(self) -> bool:
        return self._completed

    def _require_chief(self) -> None:
        if not self._chief:
            raise FailedPrecondition("only the chief (rank 0) reports on a searcher operation")


class SearcherContext:
    """Operations fabricated from `searcher.max_length` of the configuration."""

    def __init__(self, config: Mapping[str, Any], train: TrainContext, *, chief: bool) -> None:
        self._searcher: Mapping[str, Any] = config.get("searcher") or {}
        self._train = train
        self._chief = chief

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Exactly one operation. Raises `InvalidInput` when the configuration has no `searcher.max_length`."""
        if searcher_mode is SearcherMode.ChiefOnly and not self._chief:
            raise FailedPrecondition("with SearcherMode.ChiefOnly only the chief (rank 0) asks for operations")
        length, _ = self._max_length()
        operation = SearcherOperation(length, self._train, chief=self._chief)
        yield operation
        if self._chief and not operation.completed:
            raise FailedPrecondition("the chief must call report_completed() before it asks for the next operation")

    def get_configured_units(self) -> Unit | None:
        """None when the length is a bare number."""
        return self._max_length()[1]

    def acknowledge_out_of_ops(self) -> None:
        """Nothing to do: there is one operation and the trial ends after it."""

    def _max_length(self) -> tuple[int, Unit | None]:
        value = self._searcher.get("max_length")
        if value is None:
            raise InvalidInput("the configuration has no searcher.max_length; set it, or train to a length of your own")
        return parse_length(value, "searcher.max_length")
