"""Distributed data-parallel training with torch and the Core API: the same file with one process, two slots or two machines.

`torchrun` starts a process for each slot; every rank trains on its share of the data, rank 0 reports and saves.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from resolute import core

STEPS = 100
POINTS = 512


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Points of a plane with a little noise, the same on every rank."""
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(POINTS, 2, generator=draw)
    targets = inputs @ torch.tensor([[2.0], [-1.0]]) + 0.5 + 0.01 * torch.randn(POINTS, 1, generator=draw)
    return inputs, targets


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    state = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(context: core.Context, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Every rank calls it; rank 0 has files to give, for all ranks hold the same weights."""
    if context.distributed.rank == 0:
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, path / "state.pt")
    context.distributed.barrier()


def train(context: core.Context, device: torch.device) -> None:
    rank, size = context.distributed.rank, context.distributed.size
    inputs, targets = (part[rank::size].to(device) for part in data())
    torch.manual_seed(0)
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    latest = context.info.latest_checkpoint if context.info is not None else None
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            step = load(path, model, optimizer)
    # The gradient of each step is the mean over all ranks: the model stays the same everywhere.
    parallel = DistributedDataParallel(model) if size > 1 else model
    print(f"rank {rank} of {size} trains on {len(inputs)} of {POINTS} points from step {step}", flush=True)
    while step < STEPS:
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 10 == 0:
            context.train.report_training_metrics(step, {"loss": loss.item()})
        stop = context.preempt.should_preempt()  # rank 0 asks, every rank gets the same answer
        if stop or context.preempt.should_checkpoint():
            save(context, step, model, optimizer)
        if stop:
            return
    total = nn.functional.mse_loss(model(inputs), targets).detach()
    if size > 1:
        dist.all_reduce(total)
        total /= size
    save(context, step, model, optimizer)
    if rank == 0:
        context.train.report_validation_metrics(step, {"validation_loss": total.item()})
        print(f"step {step}: validation loss {total.item():.5f} over {size} ranks", flush=True)


def main() -> None:
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if several:
        dist.init_process_group("nccl" if cuda else "gloo")  # MASTER_ADDR, MASTER_PORT and the ranks are set
    try:
        with core.init() as context:
            train(context, device)
    finally:
        if several:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
