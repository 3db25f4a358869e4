"""What a checkpoint of the Trainer contains, and how it is read back. No pickled objects: `weights_only` loads it.

state.pt            models, optimizers, learning-rate schedules, gradient scaler, callbacks
trainer.json        progress and what the data order depends on
rng-rank-<n>.pt     the random states of each rank
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from resolute.errors import InvalidInput
from resolute.pytorch import rng
from resolute.pytorch.context import PyTorchTrialContext, bare
from resolute.pytorch.trial import PyTorchCallback

logger = logging.getLogger("resolute.pytorch")

STATE_NAME = "state.pt"
PROGRESS_NAME = "trainer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a training. `validated_step` and `best_validation` are None before the first validation."""

    steps_completed: int
    trial_id: int
    trial_seed: int
    global_batch_size: int
    batches_per_epoch: int
    world_size: int
    threads: int
    validated_step: int | None
    best_validation: float | None


def save(
    directory: Path, context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback], progress: Progress
) -> None:
    """Write this rank's files; the chief writes what all ranks share."""
    rank = context.distributed.rank
    torch.save(rng.capture(), directory / _rng_name(rank))
    if rank != 0:
        return
    state = {
        "models": [bare(model).state_dict() for model in context.models],
        "optimizers": [optimizer.state_dict() for optimizer in context.optimizers],
        "lr_schedulers": [{"state": rate.scheduler.state_dict(), "seen": rate.seen} for rate in context.rates],
        "scaler": None if context.scaler is None else context.scaler.state_dict(),
        "callbacks": {name: callback.state_dict() for name, callback in callbacks.items()},
    }
    torch.save(state, directory / STATE_NAME)
    (directory / PROGRESS_NAME).write_text(json.dumps(asdict(progress), indent=2))


def read_progress(directory: Path) -> Progress:
    return Progress(**json.loads((directory / PROGRESS_NAME).read_text()))


def load(directory: Path, context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback]) -> None:
    """Restore everything but the random states. Raises `InvalidInput` if the trial is built differently now."""
    state = torch.load(directory / STATE_NAME, map_location=context.device, weights_only=True)
    for name, saved, present in (
        ("models", state["models"], context.models),
        ("optimizers", state["optimizers"], context.optimizers),
        ("LR schedules", state["lr_schedulers"], context.rates),
    ):
        if len(saved) != len(present):
            raise InvalidInput(f"the checkpoint has {len(saved)} {name}, the trial has wrapped {len(present)}")
    for model, saved in zip(context.models, state["models"], strict=True):
        bare(model).load_state_dict(saved)
    for optimizer, saved in zip(context.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for rate, saved in zip(context.rates, state["lr_schedulers"], strict=True):
        rate.scheduler.load_state_dict(saved["state"])
        rate.seen = saved["seen"]
    if context.scaler is not None and state["scaler"] is not None:
        context.scaler.load_state_dict(state["scaler"])
    for name, callback in callbacks.items():
        if name in state["callbacks"]:
            callback.load_state_dict(state["callbacks"][name])


def load_rng(directory: Path, context: PyTorchTrialContext, progress: Progress) -> None:
    """Put this rank's random states back, as the very last thing before the first step.

    With another number of ranks than at the save, ranks without a state get one derived from the seed and the step:
    equal in distribution, not bit for bit.
    """
    rank = context.distributed.rank
    path = directory / _rng_name(rank)
    if progress.world_size == context.distributed.size and path.exists():
        rng.restore(torch.load(path, map_location="cpu", weights_only=True))
        return
    logger.warning(
        "the job had %d ranks and has %d now: random generators continue from derived seeds",
        progress.world_size,
        context.distributed.size,
    )
    rng.seed_all(rng.mixed(progress.trial_seed, "resized", progress.steps_completed, rank))


def keep_threads(progress: Progress) -> None:
    """Compute with as many threads as before: sums over another number of parts differ in their last bits."""
    if torch.get_num_threads() != progress.threads:
        logger.info("using %d threads as before the checkpoint, not %d", progress.threads, torch.get_num_threads())
        torch.set_num_threads(progress.threads)


def load_model_weights(checkpoint: str | Path, *models: torch.nn.Module) -> None:
    """Load the weights of a downloaded Trainer checkpoint into models, in the order in which the trial wrapped them."""
    state = torch.load(Path(checkpoint) / STATE_NAME, map_location="cpu", weights_only=True)
    if len(models) > len(state["models"]):
        raise InvalidInput(f"the checkpoint has {len(state['models'])} models, {len(models)} were given")
    for model, saved in zip(models, state["models"], strict=False):
        bare(model).load_state_dict(saved)


def _rng_name(rank: int) -> str:
    return f"rng-rank-{rank}.pt"
