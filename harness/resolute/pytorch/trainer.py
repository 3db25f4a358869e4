"""The training loop: steps, reports, validation, checkpoints, and a stop after any step that does not affect the result."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from resolute import core
from resolute.errors import InvalidInput, NotFound
from resolute.pytorch import rng, state
from resolute.pytorch.context import PyTorchTrialContext
from resolute.pytorch.data import BatchPlan
from resolute.pytorch.evaluation import Evaluator
from resolute.pytorch.settings import FitSettings, TrainUnit, gives_lengths, settings_from, steps_of, unit_of
from resolute.pytorch.trial import PyTorchTrial
from resolute.pytorch.window import ReportWindow

logger = logging.getLogger("resolute.pytorch")


@contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    aggregation_frequency: int = 1,
    trial_seed: int | None = None,
    checkpoint_storage: str | Path | None = None,
    local_dir: str | Path | None = None,
) -> Iterator[PyTorchTrialContext]:
    """The context for a trial. In a cluster, hyperparameters, configuration and seed are the trial's unless given.

    Seeds all random generators, differently for each rank, before the trial is built.
    """
    with core.init(distributed=distributed, checkpoint_storage=checkpoint_storage, local_dir=local_dir) as context:
        trial = context.info.trial if context.info is not None else None
        seed = trial_seed if trial_seed is not None else (trial.trial_seed if trial is not None else 0)
        rank = context.distributed.rank
        rng.seed_all(seed if rank == 0 else rng.mixed(seed, "rank", rank))
        with _process_group(context.distributed):
            yield PyTorchTrialContext(
                core_context=context,
                hparams=hparams if hparams is not None else (trial.hparams if trial is not None else {}),
                exp_conf=exp_conf if exp_conf is not None else (trial.config if trial is not None else {}),
                trial_seed=seed,
                aggregation_frequency=aggregation_frequency,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """The result of `fit`. `preempted`: saved, and acknowledged to the master; end the process with exit code 0."""

    steps_completed: int
    preempted: bool
    validation: Mapping[str, float] | None


class Trainer:
    """Trains one trial. `fit` may be left after any step and entered again from its checkpoint, bit for bit."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._core = context.core
        self._chief = context.distributed.rank == 0
        self._callbacks = dict(trial.build_callbacks())
        self._evaluator = Evaluator(trial, context)

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit | None = None,
        checkpoint_policy: str | None = None,
        latest_checkpoint: str | None = None,
        step_zero_validation: bool | None = None,
    ) -> FitResult:
        """Train to `max_length`, counted from the beginning of the trial, then validate and save.

        What is not given is taken from the experiment configuration (`min_checkpoint_period`, `min_validation_period`,
        `scheduling_unit`, `checkpoint_policy`, `searcher.max_length`, `perform_initial_validation`). In a cluster the
        trial's latest checkpoint is resumed unless another is named. Where the search gives its trials one length after the
        other, and no `max_length` is passed, each is trained to, validated, saved and reported.
        """
        settings = settings_from(
            self._context.get_experiment_config(),
            max_length=max_length,
            checkpoint_period=checkpoint_period,
            validation_period=validation_period,
            reporting_period=reporting_period,
            checkpoint_policy=checkpoint_policy,
            step_zero_validation=step_zero_validation,
        )
        if latest_checkpoint is None and self._core.info is not None:
            latest_checkpoint = self._core.info.latest_checkpoint
        by_lengths = max_length is None and gives_lengths(self._context.get_experiment_config())
        return _Fit(self, settings, latest_checkpoint, by_lengths=by_lengths).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Periods:
    """The settings in steps; 0 means never."""

    end: int
    checkpoint: int
    validation: int
    report: int


class _Fit:
    """One call of `fit`."""

    def __init__(
        self, trainer: Trainer, settings: FitSettings, latest_checkpoint: str | None, *, by_lengths: bool
    ) -> None:
        self._trial = trainer._trial
        self._context = trainer._context
        self._core = trainer._core
        self._chief = trainer._chief
        self._callbacks = trainer._callbacks
        self._evaluator = trainer._evaluator
        self._settings = settings
        self._latest_checkpoint = latest_checkpoint
        self._by_lengths = by_lengths
        self._loader = self._trial.build_training_data_loader()
        distributed = self._context.distributed
        self._plan: BatchPlan = self._loader.plan(
            seed=self._context.get_trial_seed(), rank=distributed.rank, size=distributed.size
        )
        self._periods = _Periods(
            end=self._steps(settings.max_length),
            checkpoint=self._steps(settings.checkpoint_period),
            validation=self._steps(settings.validation_period),
            report=self._steps(settings.reporting_period),
        )
        self._whole = self._periods.end
        self._step = 0
        self._saved_step: int | None = None
        self._validated_step: int | None = None
        self._best: float | None = None
        self._validation: dict[str, float] | None = None
        self._window = ReportWindow(self._context, self._periods.report)

    def run(self) -> FitResult:
        restored = self._restore()
        for callback in self._callbacks.values():
            callback.on_training_start()
        if self._step == 0 and self._settings.step_zero_validation:
            self._validate()
        elif restored and self._due(self._periods.validation) and self._validated_step != self._step:
            self._validate()  # it was due when the last run had to stop
        self._core.train.mark_step(self._step)
        self._core.preempt.should_checkpoint()  # the trainer saves on request, from the first step on
        preempted = self._train_by_lengths() if self._by_lengths else self._train_whole()
        return FitResult(steps_completed=self._step, preempted=preempted, validation=self._validation)

    def _train_whole(self) -> bool:
        """True when it was left because of a preemption."""
        if self._train_to_end():
            return True
        self._report()
        if self._validated_step != self._step:
            self._validate()
        if self._saved_step != self._step:
            self._save()
        if self._chief:
            self._core.train.report_progress(1.0)
        return False

    def _train_by_lengths(self) -> bool:
        """Train to each length that the search assigns, until it has none at present. True if it ended because of a preemption."""
        unit = self._core.searcher.get_configured_units()
        for operation in self._core.searcher.operations():
            self._periods = replace(self._periods, end=self._steps(unit_of(operation.length, unit)))
            if self._train_to_end():
                return True
            self._report()
            if self._validated_step != self._step or self._validation is None:
                self._validate()
            if self._saved_step != self._step:
                self._save()  # first: a trial that waits resumes from here
            if self._chief:
                operation.report_completed(self._searched_for(self._validation or {}))
        return False

    def _train_to_end(self) -> bool:
        """True when it was left because of a preemption."""
        if self._step >= self._periods.end:
            return False
        for model in self._context.models:
            model.train()
        batches = self._loader.training_batches(self._plan, self._step)
        try:
            while self._step < self._periods.end:
                self._one_step(next(batches))
                if self._after_step():
                    return True
                if self._context.get_stop_requested():
                    return False
            return False
        finally:
            del batches  # ends the loader's workers now, not when the collector comes by

    def _one_step(self, batch: Any) -> None:
        context, per_epoch = self._context, self._plan.batches_per_epoch
        context.begin_batch(self._step, per_epoch)
        epoch = self._step // per_epoch
        if self._step % per_epoch == 0:
            for callback in self._callbacks.values():
                callback.on_training_epoch_start(epoch)
        rate = context.learning_rate()
        result = self._trial.train_batch(context.to_device(batch), epoch, self._step)
        context.end_batch()
        self._step += 1
        self._window.add(result, rate)
        self._core.train.mark_step(self._step)

    def _after_step(self) -> bool:
        """Report, check whether to stop, validate, save. True if the run has to end now."""
        if self._due(self._periods.report):
            self._report()
            if self._chief:
                self._core.train.report_progress(min(1.0, self._step / self._whole))
        if self._step % self._context.aggregation_frequency != 0:
            return False  # gradients of half a window are in no checkpoint: finish the window first
        preempt = self._core.preempt
        stop, wanted = preempt.should_preempt(auto_ack=False), preempt.should_checkpoint()
        validates = self._due(self._periods.validation) and self._step < self._periods.end
        # A validation may take longer than the machine is there: the next run begins with it.
        if stop or (validates and preempt.noticed):
            self._stop_for_preemption()
            return True
        if validates:
            self._validate()
        if (wanted or self._due(self._periods.checkpoint)) and self._saved_step != self._step:
            self._save()
        return False

    def _stop_for_preemption(self) -> None:
        """Saves before the acknowledgement: an acknowledgement before a save that fails would look like a clean end."""
        logger.info("stopping at step %d: %s", self._step, self._core.preempt.reason or "preempted")
        self._report()
        if self._saved_step != self._step:
            self._save()
        self._core.train.flush()
        self._core.preempt.acknowledge_preemption_signal()
        self._context.distributed.barrier()

    def _report(self) -> None:
        self._window.report(self._step, epochs=self._step // self._plan.batches_per_epoch)

    # -------------------------------------------------------------------------------------------------- validation

    def _validate(self) -> None:
        for callback in self._callbacks.values():
            callback.on_validation_start()
        seed = rng.mixed(self._context.get_trial_seed(), "validation", self._step, self._context.distributed.rank)
        with rng.apart(seed, devices=True):
            metrics = self._evaluator.evaluate()
        self._validation, self._validated_step = metrics, self._step
        better = self._better(metrics)
        if self._chief:
            epochs = self._step // self._plan.batches_per_epoch
            self._core.train.report_validation_metrics(self._step, {"batches": self._step, "epochs": epochs, **metrics})
        logger.info("step %d: %s", self._step, ", ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
        for callback in self._callbacks.values():
            callback.on_validation_end(metrics)
        wanted = self._settings.checkpoint_policy == "all" or (self._settings.checkpoint_policy == "best" and better)
        if wanted and self._step > 0 and self._saved_step != self._step:
            self._save()

    def _better(self, metrics: Mapping[str, float]) -> bool:
        """Whether this is the best validation of the trial so far, by the searcher's metric."""
        searcher: Mapping[str, Any] = self._context.get_experiment_config().get("searcher") or {}
        if searcher.get("metric") is None:
            return True  # without a metric to compare
        metric = self._searched_for(metrics)
        value = metric if searcher.get("smaller_is_better", True) else -metric
        if self._best is None or value < self._best:
            self._best = value
            return True
        return False

    def _searched_for(self, metrics: Mapping[str, float]) -> float:
        """The searcher's metric."""
        name = str((self._context.get_experiment_config().get("searcher") or {}).get("metric"))
        if name not in metrics:
            raise InvalidInput(f"searcher.metric is {name!r}, but the validation reports {', '.join(sorted(metrics))}")
        return metrics[name]

    # ------------------------------------------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        distributed = self._context.distributed
        shard = distributed.size > 1
        metadata = {"steps_completed": self._step, "framework": f"torch-{torch.__version__}", "format": "resolute"}
        with self._core.checkpoint.store_path(metadata, shard=shard) as (path, uuid):
            state.save(path, self._context, self._callbacks, self._progress())
            if self._chief:
                for callback in self._callbacks.values():
                    callback.on_checkpoint_write_end(path)
        self._saved_step = self._step
        for callback in self._callbacks.values():
            callback.on_checkpoint_upload_end(uuid)

    def _progress(self) -> state.Progress:
        return state.Progress(
            steps_completed=self._step,
            trial_id=self._context.get_trial_id(),
            trial_seed=self._context.get_trial_seed(),
            global_batch_size=self._plan.global_batch_size,
            batches_per_epoch=self._plan.batches_per_epoch,
            world_size=self._context.distributed.size,
            threads=torch.get_num_threads(),
            validated_step=self._validated_step,
            best_validation=self._best,
        )

    def _restore(self) -> bool:
        """Resume from the latest checkpoint that is whole. False when training begins again, because none that is there is.

        Raises `StorageUnavailable` where none is there: what was trained lies somewhere else.
        """
        wanted = self._latest_checkpoint
        if wanted is None:
            return False
        found = False
        for uuid in chain([wanted], self._fallbacks(wanted)):
            try:
                with self._core.checkpoint.restore_path(uuid) as path:
                    self._load(path)
            except (core.CorruptCheckpoint, NotFound) as error:
                found = found or isinstance(error, core.CorruptCheckpoint)
                logger.error("%s; falling back to the checkpoint before it", error)
                continue
            self._core.checkpoint.started_from(uuid)
            return self._step > 0
        if not found:
            raise core.StorageUnavailable(
                f"neither checkpoint {wanted} nor one before it is in {self._core.checkpoint.storage.place}: is its file system "
                "mounted on this machine? Mount it. To train again from the beginning, create a new experiment."
            )
        logger.error("no checkpoint of this trial can be used: training starts from the beginning")
        return False

    def _fallbacks(self, uuid: str) -> Iterator[str]:
        """Earlier checkpoints, which are requested only when they are needed. All ranks get the same list, from the chief."""
        found = list(self._core.checkpoint.earlier(uuid)) if self._chief else []
        yield from self._context.distributed.broadcast(found)

    def _load(self, path: Path) -> None:
        progress = state.read_progress(path)
        if progress.trial_id != self._context.get_trial_id():
            state.load(path, self._context, self._callbacks)
            logger.info("starting from the weights of trial %d, with step 0", progress.trial_id)
            return
        for name, saved, present in (
            ("global batch size", progress.global_batch_size, self._plan.global_batch_size),
            ("number of batches per epoch", progress.batches_per_epoch, self._plan.batches_per_epoch),
            ("trial seed", progress.trial_seed, self._context.get_trial_seed()),
        ):
            if saved != present:
                raise InvalidInput(
                    f"the checkpoint was made with a {name} of {saved}, it is {present} now: the data order would break"
                )
        state.load(path, self._context, self._callbacks)
        self._step = self._saved_step = progress.steps_completed
        self._validated_step = progress.validated_step
        self._best = progress.best_validation
        state.keep_threads(progress)
        state.load_rng(path, self._context, progress)
        logger.info("resumed at step %d", self._step)

    def _due(self, period: int) -> bool:
        return period > 0 and self._step > 0 and self._step % period == 0

    def _steps(self, unit: TrainUnit | None) -> int:
        return steps_of(
            unit,
            batches_per_epoch=self._plan.batches_per_epoch,
            global_batch_size=self._plan.global_batch_size,
        )


@contextmanager
def _process_group(distributed: core.DistributedContext) -> Iterator[None]:
    """torch's own process group for gradients, at a port that the chief finds free."""
    if distributed.size == 1:
        yield
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    port = distributed.broadcast(_free_port() if distributed.rank == 0 else 0)
    torch.distributed.init_process_group(
        backend,
        init_method=f"tcp://{distributed.chief_ip}:{port}",
        rank=distributed.rank,
        world_size=distributed.size,
    )
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
