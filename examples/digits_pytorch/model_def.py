"""A small convolutional network that learns to read digits. Runs in a cluster and, with --local, without one."""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from data import digits
from torch import nn
from torch.nn import functional

from resolute import pytorch

LOCAL_HPARAMS: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 0.002,
    "dropout": 0.2,
    "width": 32,
    "samples": 6000,
    "schedule_steps": 1000,
    "loader_workers": 0,
    "reporting_period": 1,
    "step_sleep_s": 0.0,
    "threads": 1,
}
LOCAL_STEPS = 1000


class Reader(nn.Module):
    """Two convolutions and two linear layers, with dropout."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * 49, 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.features(images))
        return result


class DigitsTrial(pytorch.PyTorchTrial):
    """Adam with a learning rate that falls along a cosine."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        hparams = context.get_hparams()
        self.hparams = hparams
        self.train_set = digits(int(hparams["samples"]), seed=1)
        self.validation_set = digits(1000, seed=2)
        self.model = context.wrap_model(Reader(int(hparams["width"]), float(hparams["dropout"])))
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=float(hparams["learning_rate"]))
        )
        self.schedule = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=int(hparams["schedule_steps"])),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(
            self.train_set,
            batch_size=int(self.hparams["batch_size"]),
            shuffle=True,
            num_workers=int(self.hparams["loader_workers"]),
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.validation_set, batch_size=250)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if self.hparams["step_sleep_s"]:
            time.sleep(float(self.hparams["step_sleep_s"]))  # paces a demonstration; no part of training
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images)
        return {
            "validation_loss": functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(dim=1) == labels).float().mean(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", action="store_true", help="train here, without a cluster")
    parser.add_argument(
        "--steps", type=int, default=LOCAL_STEPS, help="with --local: how many steps (default %(default)s)"
    )
    parser.add_argument("--local-dir", default="digits-run", help="with --local: where reports and checkpoints go")
    parser.add_argument("--resume", metavar="UUID", help="with --local: the checkpoint to resume from")
    options = parser.parse_args()
    arguments: dict[str, Any] = {}
    length = None
    if options.local:
        arguments = {"hparams": LOCAL_HPARAMS, "local_dir": options.local_dir, "trial_seed": 17}
        length = pytorch.Batch(options.steps)
    with pytorch.init(**arguments) as context:
        # The same number of threads everywhere: sums in another order would differ in their last bits.
        torch.set_num_threads(int(context.get_hparam("threads")))
        trainer = pytorch.Trainer(DigitsTrial(context), context)
        result = trainer.fit(
            max_length=length,
            reporting_period=pytorch.Batch(int(context.get_hparam("reporting_period"))),
            latest_checkpoint=options.resume,
        )
    if result.preempted:
        print(f"stopped at step {result.steps_completed}; the checkpoint is saved")
    elif result.validation is not None:
        print(f"step {result.steps_completed}: validation accuracy {result.validation['accuracy']:.3f}")


if __name__ == "__main__":
    main()
