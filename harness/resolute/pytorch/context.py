"""The context of a trial: its hyperparameters, its place, and wrappers that define what the Trainer steps and saves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from resolute import core
from resolute.errors import FailedPrecondition, InvalidInput

logger = logging.getLogger("resolute.pytorch")

ModelT = TypeVar("ModelT", bound=torch.nn.Module)


class LRScheduler:
    """When the Trainer steps a learning-rate schedule."""

    class StepMode(Enum):
        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4


@dataclass(slots=True, kw_only=True)
class ScheduledRate:
    """A schedule and how often it is due. `owed` are steps that wait for the optimizer's next step."""

    scheduler: Any
    mode: LRScheduler.StepMode
    frequency: int
    owed: int = 0
    seen: int = 0

    def after_batch(self, batch_idx: int, batches_per_epoch: int, *, optimizer_stepped: bool) -> None:
        """Count what is due after this batch; step only behind the optimizer, as torch demands."""
        if self.mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            self.owed += (batch_idx + 1) % self.frequency == 0
        elif self.mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            epochs, rest = divmod(batch_idx + 1, batches_per_epoch)
            self.owed += rest == 0 and epochs % self.frequency == 0
        elif self.mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP and optimizer_stepped:
            self.seen += 1
            self.owed += self.seen % self.frequency == 0
        if optimizer_stepped:
            for _ in range(self.owed):
                self.scheduler.step()
            self.owed = 0


class PyTorchTrialContext:
    """The context of a trial, the argument of its constructor. `core` is the Core API context."""

    def __init__(
        self,
        *,
        core_context: core.Context,
        hparams: Mapping[str, Any],
        exp_conf: Mapping[str, Any],
        trial_seed: int,
        aggregation_frequency: int = 1,
    ) -> None:
        if aggregation_frequency < 1:
            raise InvalidInput(f"aggregation_frequency is {aggregation_frequency}; it must be at least 1")
        self.core = core_context
        self.distributed = core_context.distributed
        self.aggregation_frequency = aggregation_frequency
        self.device = _device(self.distributed)
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.rates: list[ScheduledRate] = []
        self.scaler: Any = None
        self._hparams = dict(hparams)
        self._exp_conf = dict(exp_conf)
        self._trial_seed = trial_seed
        self._batch_idx = 0
        self._batches_per_epoch: int | None = None
        self._stepped = False
        self._stop_requested = False

    # ------------------------------------------------------------------------------------------- what a trial asks

    def get_hparams(self) -> dict[str, Any]:
        return dict(self._hparams)

    def get_hparam(self, name: str) -> Any:
        if name not in self._hparams:
            known = ", ".join(sorted(self._hparams)) or "none"
            raise InvalidInput(f"there is no hyperparameter {name!r}; there are {known}")
        return self._hparams[name]

    def get_experiment_config(self) -> dict[str, Any]:
        return dict(self._exp_conf)

    def get_data_config(self) -> dict[str, Any]:
        return dict(self._exp_conf.get("data") or {})

    def get_trial_seed(self) -> int:
        return self._trial_seed

    def get_experiment_id(self) -> int:
        """0 off-cluster."""
        trial = self.core.info.trial if self.core.info is not None else None
        return trial.experiment_id if trial is not None else 0

    def get_trial_id(self) -> int:
        """0 off-cluster."""
        trial = self.core.info.trial if self.core.info is not None else None
        return trial.trial_id if trial is not None else 0

    def get_global_batch_size(self) -> int:
        size = self.get_hparam("global_batch_size")
        if not isinstance(size, int) or size < self.distributed.size:
            raise InvalidInput(
                f"global_batch_size is {size!r}; it must be a whole number of at least one for each of "
                f"{self.distributed.size} slots"
            )
        return self.get_per_slot_batch_size_of(size) * self.distributed.size

    def get_per_slot_batch_size(self) -> int:
        return self.get_global_batch_size() // self.distributed.size

    def get_per_slot_batch_size_of(self, global_batch_size: int) -> int:
        share, rest = divmod(global_batch_size, self.distributed.size)
        if rest:
            logger.warning(
                "a global batch of %d does not divide by %d slots; using %d",
                global_batch_size,
                self.distributed.size,
                share * self.distributed.size,
            )
        return share

    def current_train_batch(self) -> int:
        return self._batch_idx

    def current_train_epoch(self) -> int:
        return self._batch_idx // self._epoch_length()

    def is_epoch_start(self) -> bool:
        return self._batch_idx % self._epoch_length() == 0

    def is_epoch_end(self) -> bool:
        return (self._batch_idx + 1) % self._epoch_length() == 0

    def set_stop_requested(self, stop_requested: bool) -> None:
        """End training after the current step, with a checkpoint."""
        self._stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        return self._stop_requested

    # --------------------------------------------------------------------------------------------------- wrappers

    def wrap_model(self, model: ModelT) -> ModelT:
        """Move a model to this slot's device; with several slots its gradients are averaged over them."""
        model.to(self.device)
        if self.distributed.size > 1:
            devices = [self.device] if self.device.type == "cuda" else None
            wrapped = DistributedDataParallel(model, device_ids=devices)
            self.models.append(wrapped)
            return wrapped  # type: ignore[return-value]  # calls like the model it wraps
        self.models.append(model)
        return model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Let the Trainer step a schedule; with `MANUAL_STEP` it is only saved and restored."""
        plateau = isinstance(lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        if plateau and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise InvalidInput("ReduceLROnPlateau needs a metric to step on: use StepMode.MANUAL_STEP")
        if not any(lr_scheduler.optimizer is optimizer for optimizer in self.optimizers):
            raise FailedPrecondition("wrap the optimizer before the schedule that changes its learning rate")
        self.rates.append(ScheduledRate(scheduler=lr_scheduler, mode=step_mode, frequency=max(1, frequency)))
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        if self.scaler is not None:
            raise FailedPrecondition("a gradient scaler is already wrapped")
        self.scaler = scaler
        return scaler

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of this batch; between aggregated batches they are not yet exchanged between slots."""
        exchange = self._window_ends()
        with nullcontext() if exchange else _no_exchange(self.models):
            loss.backward()  # type: ignore[no-untyped-call,unused-ignore]

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Iterable[torch.nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Step when this batch completes an aggregation window; gradients are averaged over the window."""
        if not self._window_ends():
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self.aggregation_frequency > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self.aggregation_frequency)
        if clip_grads is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            clip_grads(parameters)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        self._stepped = True
        if auto_zero_grads:
            optimizer.zero_grad()

    def to_device(self, data: Any) -> Any:
        """Move all tensors in a nested value to this slot's device."""
        if isinstance(data, torch.Tensor):
            return data.to(self.device, non_blocking=True)
        if isinstance(data, Mapping):
            return {key: self.to_device(value) for key, value in data.items()}
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return type(data)(*(self.to_device(value) for value in data))
        if isinstance(data, (list, tuple)):
            return type(data)(self.to_device(value) for value in data)
        return data

    # --------------------------------------------------------------------------------------------- for the Trainer

    def begin_batch(self, batch_idx: int, batches_per_epoch: int) -> None:
        self._batch_idx = batch_idx
        self._batches_per_epoch = batches_per_epoch
        self._stepped = False

    def end_batch(self) -> None:
        for rate in self.rates:
            rate.after_batch(self._batch_idx, self._epoch_length(), optimizer_stepped=self._stepped)

    def learning_rate(self) -> float | None:
        """The rate of the first group of the first optimizer."""
        return float(self.optimizers[0].param_groups[0]["lr"]) if self.optimizers else None

    def _window_ends(self) -> bool:
        return (self._batch_idx + 1) % self.aggregation_frequency == 0

    def _epoch_length(self) -> int:
        if self._batches_per_epoch is None:
            raise FailedPrecondition("epochs are known only while the Trainer runs")
        return self._batches_per_epoch


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside a wrapper for several slots."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _device(distributed: core.DistributedContext) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", distributed.local_rank % torch.cuda.device_count())


def _no_exchange(models: list[torch.nn.Module]) -> Any:
    from contextlib import ExitStack

    stack = ExitStack()
    for model in models:
        if isinstance(model, DistributedDataParallel):
            stack.enter_context(model.no_sync())
    return stack
