"""Base classes for users: a trial class, and callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from resolute.errors import InvalidInput
from resolute.pytorch.context import PyTorchTrialContext
from resolute.pytorch.data import DataLoader


class Reducer(Enum):
    """How the values of a validation metric over batches become one. `AVG` weights batches by their length."""

    AVG = "avg"
    SUM = "sum"
    MAX = "max"
    MIN = "min"

    def reduce(self, values: Sequence[float], weights: Sequence[int]) -> float:
        if self is Reducer.AVG:
            return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
        if self is Reducer.SUM:
            return sum(values)
        return max(values) if self is Reducer.MAX else min(values)


class PyTorchCallback:
    """Hooks around training; override what you need. `state_dict` and `load_state_dict` travel in checkpoints."""

    def on_training_start(self) -> None: ...

    def on_training_epoch_start(self, epoch_idx: int) -> None: ...

    def on_validation_start(self) -> None: ...

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None: ...

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None: ...

    def on_checkpoint_upload_end(self, uuid: str) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class PyTorchTrial(ABC):
    """One model and how to train it. Build models and optimizers in `__init__` and wrap them with the context.

    Implement `evaluate_batch` or `evaluate_full_dataset`, not both.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context

    @abstractmethod
    def train_batch(
        self, batch: Any, epoch_idx: int, batch_idx: int
    ) -> torch.Tensor | Mapping[str, torch.Tensor | float]:
        """Train on one batch; `batch_idx` counts from the start of the trial. Return the loss, or named metrics."""

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader: ...

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader: ...

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Mapping[str, torch.Tensor | float]:
        """Metrics of one validation batch; they are reduced over batches and ranks by `evaluation_reducer`."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Iterable[Any]) -> Mapping[str, torch.Tensor | float]:
        """Metrics of the whole validation set, computed by the chief alone."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | Mapping[str, Reducer]:
        return Reducer.AVG

    def build_callbacks(self) -> Mapping[str, PyTorchCallback]:
        return {}

    def get_batch_length(self, batch: Any) -> int:
        """How many samples a batch has: the first dimension of the first tensor found in it."""
        found = _first_tensor(batch)
        if found is None or found.dim() == 0:
            raise InvalidInput("the batch has no tensor with a first dimension; override get_batch_length")
        return int(found.shape[0])


def evaluates_by_batch(trial: PyTorchTrial) -> bool:
    """Raises `InvalidInput` unless exactly one of the two ways to evaluate is implemented."""
    by_batch = type(trial).evaluate_batch is not PyTorchTrial.evaluate_batch
    whole = type(trial).evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset
    if by_batch == whole:
        count = "both" if by_batch else "neither"
        raise InvalidInput(
            f"{type(trial).__name__} implements {count} of evaluate_batch and evaluate_full_dataset; exactly one is needed"
        )
    return by_batch


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    items: Iterable[Any] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    for item in items:
        found = _first_tensor(item)
        if found is not None:
            return found
    return None
