"""How long to train and how often to report, validate and save; from arguments or from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.core import Unit, parse_length
from resolute.errors import InvalidInput

DEFAULT_REPORTING_STEPS = 100
POLICIES = ("best", "all", "none")


@dataclass(frozen=True, slots=True)
class Batch:
    """A number of steps, each of one batch per slot."""

    value: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """A number of passes over the training data."""

    value: int


@dataclass(frozen=True, slots=True)
class Records:
    """A number of samples; at least one step."""

    value: int


TrainUnit = Batch | Epoch | Records


def steps_of(unit: TrainUnit | None, *, batches_per_epoch: int, global_batch_size: int) -> int:
    """A unit in steps; 0 for None and for a value of 0."""
    match unit:
        case None:
            return 0
        case Batch(value):
            return value
        case Epoch(value):
            return value * batches_per_epoch
        case Records(value):
            return max(1, value // global_batch_size) if value else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """What `Trainer.fit` does when. None for a period means never, apart from the end."""

    max_length: TrainUnit
    checkpoint_period: TrainUnit | None = None
    validation_period: TrainUnit | None = None
    reporting_period: TrainUnit = Batch(DEFAULT_REPORTING_STEPS)
    checkpoint_policy: str = "best"
    step_zero_validation: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint_policy not in POLICIES:
            raise InvalidInput(f"checkpoint_policy is {self.checkpoint_policy!r}; use one of {', '.join(POLICIES)}")
        for name in ("max_length", "reporting_period"):
            unit = getattr(self, name)
            if unit.value < 1:
                raise InvalidInput(f"{name} is {unit}; it must be at least 1")


def unit_from_config(value: Any, key: str) -> TrainUnit | None:
    """`{batches: 100}`, `{epochs: 2}`, `{records: 5000}` or a bare number of batches; None and zero give None."""
    if value is None:
        return None
    amount, unit = parse_length(value, key)
    return unit_of(amount, unit) if amount else None


def unit_of(amount: int, unit: Unit | None) -> TrainUnit:
    """A bare number counts batches."""
    if unit is Unit.EPOCHS:
        return Epoch(amount)
    return Records(amount) if unit is Unit.RECORDS else Batch(amount)


def gives_lengths(config: Mapping[str, Any]) -> bool:
    """Whether the search gives a trial one length after the other, and compares the results of each length."""
    searcher: Mapping[str, Any] = config.get("searcher") or {}
    if searcher.get("name") == "pbt":
        return True
    by_time = searcher.get("max_time") and searcher.get("time_metric")
    return searcher.get("name") in ("async_halving", "adaptive_asha") and not by_time


def length_from_config(config: Mapping[str, Any]) -> TrainUnit | None:
    """The length of trials that the search requests: `searcher.max_length`, or `max_time` where `time_metric` counts it."""
    searcher: Mapping[str, Any] = config.get("searcher") or {}
    length = unit_from_config(searcher.get("max_length"), "searcher.max_length")
    if searcher.get("name") == "pbt" and searcher.get("length_per_round"):
        amount, unit = parse_length(searcher["length_per_round"], "searcher.length_per_round")
        length = unit_of(amount * int(searcher.get("num_rounds") or 1), unit)
    if length is None and searcher.get("time_metric") in ("batches", "epochs") and searcher.get("max_time"):
        amount = int(searcher["max_time"])
        length = Batch(amount) if searcher["time_metric"] == "batches" else Epoch(amount)
    return length


def settings_from(
    config: Mapping[str, Any],
    *,
    max_length: TrainUnit | None,
    checkpoint_period: TrainUnit | None,
    validation_period: TrainUnit | None,
    reporting_period: TrainUnit | None,
    checkpoint_policy: str | None,
    step_zero_validation: bool | None,
) -> FitSettings:
    """Arguments where they are given, else the experiment configuration, else the defaults."""
    length = max_length or length_from_config(config)
    if length is None:
        raise InvalidInput("the training length is not set: pass max_length to fit(), or set searcher.max_length")
    return FitSettings(
        max_length=length,
        checkpoint_period=checkpoint_period
        or unit_from_config(config.get("min_checkpoint_period"), "min_checkpoint_period"),
        validation_period=validation_period
        or unit_from_config(config.get("min_validation_period"), "min_validation_period"),
        reporting_period=reporting_period or Batch(int(config.get("scheduling_unit") or DEFAULT_REPORTING_STEPS)),
        checkpoint_policy=checkpoint_policy or str(config.get("checkpoint_policy") or "best"),
        step_zero_validation=bool(config.get("perform_initial_validation"))
        if step_zero_validation is None
        else step_zero_validation,
    )
