"""Validation: over all batches and ranks, reduced to one number per metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from resolute.errors import InvalidInput
from resolute.pytorch.context import PyTorchTrialContext
from resolute.pytorch.trial import PyTorchTrial, Reducer, evaluates_by_batch
from resolute.pytorch.window import number


class Evaluator:
    """Evaluates a trial as it is now; every rank gets the same result."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._by_batch = evaluates_by_batch(trial)

    def evaluate(self) -> dict[str, float]:
        """Raises `InvalidInput` when batches report metrics of different names."""
        for model in self._context.models:
            model.eval()
        try:
            with torch.no_grad():
                return self._over_batches() if self._by_batch else self._whole()
        finally:
            for model in self._context.models:
                model.train()

    def _over_batches(self) -> dict[str, float]:
        distributed, seed = self._context.distributed, self._context.get_trial_seed()
        loader = self._trial.build_validation_data_loader()
        plan = loader.plan(seed=seed, rank=distributed.rank, size=distributed.size, ragged=True)
        entries: list[dict[str, float]] = []
        weights: list[int] = []
        for index, raw in enumerate(loader.epoch_batches(plan)):
            batch = self._context.to_device(raw)
            metrics = self._trial.evaluate_batch(batch, index)
            entries.append({name: number(name, value) for name, value in metrics.items()})
            weights.append(self._trial.get_batch_length(batch))
        everyone: list[Any] = distributed.allgather({"entries": entries, "weights": weights})
        all_entries: list[dict[str, float]] = [entry for one in everyone for entry in one["entries"]]
        all_weights: list[int] = [weight for one in everyone for weight in one["weights"]]
        return self._reduced(all_entries, all_weights)

    def _whole(self) -> dict[str, float]:
        distributed = self._context.distributed
        result: dict[str, float] | None = None
        if distributed.rank == 0:
            loader = self._trial.build_validation_data_loader()
            plan = loader.plan(seed=self._context.get_trial_seed(), rank=0, size=1)
            batches = (self._context.to_device(batch) for batch in loader.epoch_batches(plan))
            result = {name: number(name, value) for name, value in self._trial.evaluate_full_dataset(batches).items()}
        shared: Any = distributed.broadcast(result)
        return dict(shared)

    def _reduced(self, entries: list[dict[str, float]], weights: list[int]) -> dict[str, float]:
        names = list(entries[0])
        if any(set(entry) != set(names) for entry in entries):
            raise InvalidInput("evaluate_batch must return metrics of the same names for every batch")
        reducer = self._trial.evaluation_reducer()
        reducers: Mapping[str, Reducer] = reducer if isinstance(reducer, Mapping) else dict.fromkeys(names, reducer)
        missing = sorted(set(names) - set(reducers))
        if missing:
            raise InvalidInput(f"evaluation_reducer names no reducer for {', '.join(missing)}")
        return {name: reducers[name].reduce([entry[name] for entry in entries], weights) for name in names}
