"""The training metrics of the steps since the last report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from resolute.errors import InvalidInput
from resolute.pytorch.context import PyTorchTrialContext


class ReportWindow:
    """Collects each step's metrics and reports their means, and the steps one by one, when a window is full.

    Values stay on the device until then, so that collecting does not wait for it.
    """

    def __init__(self, context: PyTorchTrialContext, period: int) -> None:
        self._context = context
        self._period = period
        self._steps: list[tuple[Mapping[str, torch.Tensor | float], float | None]] = []

    def add(self, result: torch.Tensor | Mapping[str, torch.Tensor | float], rate: float | None) -> None:
        """`result` is what `train_batch` returned, `rate` the learning rate it was trained with."""
        metrics: Mapping[str, torch.Tensor | float] = {"loss": result} if isinstance(result, torch.Tensor) else result
        kept = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}
        self._steps.append((kept, rate))

    def report(self, step: int, *, epochs: int = 0) -> None:
        """Report the collected metrics up to `step`; nothing if there are none."""
        if not self._steps:
            return
        mine = [{name: number(name, value) for name, value in metrics.items()} for metrics, _ in self._steps]
        rates = [rate for _, rate in self._steps]
        self._steps = []
        distributed = self._context.distributed
        everyone = distributed.allgather(mine)
        if distributed.rank != 0:
            return
        entries: list[dict[str, Any]] = []
        for index, rate in enumerate(rates):
            entry: dict[str, Any] = _mean([steps[index] for steps in everyone])
            if rate is not None:
                entry.setdefault("lr", rate)
            entries.append(entry)
        means: dict[str, Any] = _mean([{name: entry[name] for name in mine[0]} for entry in entries])
        if "lr" in entries[-1]:
            means.setdefault("lr", entries[-1]["lr"])
        means = {"batches": step, "epochs": epochs, **means}
        self._context.core.train.report_training_metrics(step, means, entries if self._period > 1 else None)


def number(name: str, value: Any) -> float:
    """A metric as an exact Python float. Raises `InvalidInput` naming what is not one number."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise InvalidInput(f"metric {name!r} has shape {tuple(value.shape)}; report single numbers")
        return float(value.item())
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"metric {name!r} is a {type(value).__name__}, not a number") from None


def _mean(entries: list[dict[str, float]]) -> dict[str, float]:
    if len(entries) == 1:
        return dict(entries[0])  # the value itself, not a rounded quotient
    names = set(entries[0])
    if any(set(entry) != names for entry in entries):
        raise InvalidInput("train_batch must return metrics of the same names at every step and on every rank")
    return {name: sum(entry[name] for entry in entries) / len(entries) for name in entries[0]}
