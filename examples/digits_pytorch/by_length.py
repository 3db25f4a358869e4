"""The same model for searches that hand out lengths: train until each, save, report, and leave when there is nothing to do."""

from __future__ import annotations

from typing import Any

import torch
from data import digits
from model_def import Reader
from torch.nn import functional

from resolute import core


def load(context: core.Context, model: Reader, optimizer: torch.optim.Optimizer) -> int:
    """The step to resume from. A copy of another trial begins with that one's weights, and counts its own steps."""
    info = context.info
    if info is None or info.trial is None or info.latest_checkpoint is None:
        return 0
    with context.checkpoint.restore_path(info.latest_checkpoint) as path:
        state: dict[str, Any] = torch.load(path / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    if state["trial"] != info.trial.trial_id:
        return 0
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(context: core.Context, step: int, model: Reader, optimizer: torch.optim.Optimizer) -> None:
    trial = context.info.trial.trial_id if context.info is not None and context.info.trial is not None else 0
    state = {"step": step, "trial": trial, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        torch.save(state, path / "state.pt")


def accuracy(model: Reader, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def train(context: core.Context, hparams: dict[str, Any], seed: int) -> None:
    torch.set_num_threads(int(hparams["threads"]))
    torch.manual_seed(seed)
    model = Reader(int(hparams["width"]), float(hparams["dropout"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=float(hparams["learning_rate"]))
    step = load(context, model, optimizer)
    for group in optimizer.param_groups:
        group["lr"] = float(hparams["learning_rate"])
    images, labels = digits(int(hparams["samples"]), seed=1).tensors
    validation = digits(1000, seed=2).tensors
    size = int(hparams["batch_size"])
    context.train.mark_step(step)
    for operation in context.searcher.operations():
        while step < operation.length:
            # The batch and the dropout follow from the step alone, so that a run that was cut continues with the same ones.
            torch.manual_seed(seed + step)
            chosen = torch.randint(len(images), (size,))
            loss = functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            context.train.mark_step(step)
            context.train.report_training_metrics(step, {"loss": loss.item()})
            if context.preempt.should_preempt(auto_ack=False):
                save(context, step, model, optimizer)
                context.preempt.acknowledge_preemption_signal()
                return
            if context.preempt.should_checkpoint():  # after a notice: save, and train on while there is time
                save(context, step, model, optimizer)
        reached = accuracy(model, *validation)
        context.train.report_validation_metrics(step, {"accuracy": reached, "batches": step})
        save(context, step, model, optimizer)  # first: a trial that waits, and its copies, resume from here
        operation.report_completed(reached)


def main() -> None:
    with core.init() as context:
        if context.info is None or context.info.trial is None:
            raise SystemExit("this program asks a search for its lengths: det experiment create pbt.yaml .")
        train(context, dict(context.info.trial.hparams), context.info.trial.trial_seed)


if __name__ == "__main__":
    main()
