"""A tiny trial with every kind of state: dropout, augmentation from three generators, a schedule, momentum."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset

from resolute import pytorch


class NoisyPoints(Dataset[Any]):
    """Points of two classes; each access adds noise drawn from Python's, NumPy's and torch's global generators."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(3)
        self.points = torch.randn(count, 4, generator=draw)
        self.labels = (self.points.sum(dim=1) > 0).long()

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = 0.1 * torch.randn(4) + 0.1 * random.random() + 0.1 * float(numpy.random.rand())
        return self.points[index] + noise, self.labels[index]


class PointsTrial(pytorch.PyTorchTrial):
    """37 samples in batches of 5: the last batch of each of the 8 steps of an epoch is short."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.workers = int(context.get_hparam("workers"))
        self.model = context.wrap_model(
            torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
            )
        )
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.9),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        self.seen: list[list[float]] = []

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(NoisyPoints(37), batch_size=5, shuffle=True, num_workers=self.workers)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(NoisyPoints(11), batch_size=4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        points, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(points), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        # Draws of user code in the main process belong to the run's randomness too.
        return loss + 0.001 * random.random() + 0.001 * torch.rand(())

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        points, labels = batch
        return {"loss": torch.nn.functional.cross_entropy(self.model(points), labels) + 0.01 * torch.rand(())}


def main() -> None:
    """The program of a managed trial: `python harness_training.py`."""
    torch.set_num_threads(1)
    with pytorch.init() as context:
        pytorch.Trainer(PointsTrial(context), context).fit()


if __name__ == "__main__":
    main()
