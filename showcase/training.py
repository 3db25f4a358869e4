"""The simulated training program: it trains by epochs after a script, and reports like our harness."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from resolute.clock import Clock
from resolute.errors import ResoluteError
from resolute.ids import IdSource
from resolute.wire.states import NoticeKind
from resolute_agent.runtimes.scripted import ScriptedTask
from resolute_master.domain.commands import ReportCheckpoint
from resolute_master.domain.ids import AllocationId, ContainerId, TaskId, TrialId
from resolute_master.domain.metrics import LogRecord, MetricReport
from resolute_sim.client import Site, TaskClient
from resolute_sim.machine import SimulatedMachine

BATCHES = 100
"""Fraction of an epoch in one step."""

FENCED, FAILED = 3, 1

PROGRESS_EVERY = 4
"""Epochs."""

LOOK_S = 45.0
"""Interval of a task's preemption checks."""

TRACEBACK = """\
Traceback (most recent call last):
  File "/run/determined/workdir/train.py", line 118, in <module>
    main(core_context)
  File "/run/determined/workdir/train.py", line 84, in main
    loss.backward()
{error}
"""
ERRORS = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 22.19 GiB",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 512])",
)


@dataclass(slots=True)
class Storage:
    """State that outlives machines."""

    failures: dict[int, int] = field(default_factory=dict)
    """Number of failures of each trial."""
    gangs: dict[str, asyncio.Event] = field(default_factory=dict)
    """Allocations whose chief has ended."""


class Place(Site, Protocol):
    clock: Clock
    ids: IdSource
    storage: Storage


class Training:
    """The program of one container."""

    def __init__(self, place: Place, machine: SimulatedMachine, task: ScriptedTask) -> None:
        environment = task.spec.environment
        self._place = place
        self._machine = machine
        self._task = task
        config = json.loads(environment["DET_EXPERIMENT_CONFIG"])
        self._script: Mapping[str, Any] = config["data"]
        self._metric: str = config["searcher"]["metric"]
        self._hparams: Mapping[str, Any] = json.loads(environment["DET_HPARAMS"])
        self._trial = int(environment["DET_TRIAL_ID"])
        self._run = int(environment["DET_TRIAL_RUN_ID"])
        self._task_id = TaskId(environment["DET_TASK_ID"])
        self._epoch = int(environment["DET_STEPS_COMPLETED"]) // BATCHES
        self._allocation = AllocationId(environment["DET_ALLOCATION_ID"])
        self._container = ContainerId(task.spec.container_id)
        self._client = TaskClient(place, machine, self._allocation)
        self._rank = 0
        self._lines = 0
        self._saved = self._epoch

    async def __call__(self) -> int:
        over = self._place.storage.gangs.setdefault(self._allocation, asyncio.Event())
        try:
            self._rank = await self._client.rendezvous(self._container)
            if self._rank:
                await self._print("INFO", f"rank {self._rank} joined")
                await over.wait()
                return 0
            await asyncio.sleep(float(self._script.get("load_s", 40.0)))
            from_ = f"epoch {self._epoch}" if self._epoch else "the beginning"
            await self._print("INFO", f"training from {from_} with {json.dumps(dict(self._hparams))}")
            return await self._train()
        except ResoluteError:
            return FENCED
        finally:
            if not self._rank:
                over.set()

    async def _train(self) -> int:
        epochs = int(self._script["epochs"])
        while self._epoch < epochs:
            if await self._pause(float(self._script["epoch_s"]) * self._noise("time", 0.06, 1.0)):
                self._epoch += 1
                await self._report()
                if self._fails():
                    await self._print("ERROR", TRACEBACK.format(error=ERRORS[self._trial % len(ERRORS)]))
                    return FAILED
            stop = self._stop_wanted()
            if stop:
                await self._client.acknowledge()
                await self._print("WARNING", "asked to stop: saving and leaving")
            if stop or self._epoch % int(self._script["save_every"]) == 0 or self._epoch == epochs:
                await self._save()
            if stop:
                return 0
        await self._print("INFO", f"finished {epochs} epochs")
        return 0

    # --------------------------------------------------------------------------------------------------------- reports

    async def _report(self) -> None:
        loss = self._loss()
        gap = 0.82 + 0.1 * math.exp(-self._epoch / 6)
        training = {"loss": loss * gap, "learning_rate": self._learning_rate()}
        seconds = float(self._script["epoch_s"])
        training["samples_per_second"] = 64 * BATCHES / seconds * self._noise("speed", 0.03, 1.0)
        await self._metrics("training", training)
        validation = {self._metric: loss, "accuracy": self._accuracy(loss), "epochs": self._epoch}
        await self._metrics("validation", validation)
        await self._print(
            "INFO", f"epoch {self._epoch}: loss {training['loss']:.4f}, {self._metric} {loss:.4f}, {seconds:.0f} s"
        )
        if self._epoch % PROGRESS_EVERY == 0:
            await self._client.progress(self._trial, self._epoch / int(self._script["epochs"]))

    def _loss(self) -> float:
        """The loss curve: it decays to a floor that depends on the hyperparameters. A high learning rate adds noise."""
        rate = float(self._hparams.get("learning_rate", 1e-3))
        off = abs(math.log10(rate) - float(self._script["best_rate"]))
        dropout = float(self._hparams.get("dropout", 0.2))
        floor = float(self._script["floor"]) * (1 + 0.35 * off**1.6 + 1.2 * (dropout - 0.25) ** 2)
        pace = float(self._script.get("pace", 8.0)) * (1 + 0.5 * max(0.0, -3.2 - math.log10(rate)))
        restless = 0.012 + 0.03 * max(0.0, math.log10(rate) + 2.2)
        begin = 2.6 * self._noise("begin", 0.04, 1.0, epoch=False)
        fallen: float = floor + (begin - floor) * math.exp(-self._epoch / pace)
        return fallen * self._noise("loss", restless, 1.0)

    def _learning_rate(self) -> float:
        rate, epochs = float(self._hparams.get("learning_rate", 1e-3)), int(self._script["epochs"])
        return rate * 0.5 * (1 + math.cos(math.pi * self._epoch / epochs))

    def _accuracy(self, loss: float) -> float:
        return max(0.02, min(0.995, 1 - 0.33 * loss)) * self._noise("accuracy", 0.004, 1.0)

    def _noise(self, what: str, width: float, centre: float, *, epoch: bool = True) -> float:
        """A random generator that depends on trial and epoch, not on the run."""
        rng = random.Random(f"{self._trial} {self._epoch if epoch else ''} {what}")
        return centre + rng.gauss(0.0, width)

    async def _metrics(self, group: str, metrics: dict[str, Any]) -> None:
        await self._client.metrics(
            MetricReport(
                trial_id=TrialId(self._trial),
                run_id=self._run,
                group=group,
                steps_completed=self._epoch * BATCHES,
                reported_at=self._place.clock.now(),
                metrics=metrics,
            )
        )

    async def _print(self, level: str, text: str) -> None:
        """Log lines as the harness ships them, with level and rank."""
        lines = text.rstrip("\n").split("\n")
        records = [
            LogRecord(
                key=f"{self._container}:{self._lines + number}",
                task_id=self._task_id,
                allocation_id=self._allocation,
                agent_id=self._machine.id,
                container_id=self._container,
                rank=self._rank,
                at=self._place.clock.now(),
                level=level,
                stdtype="stdout",
                source="task",
                log=f"{line}\n",
            )
            for number, line in enumerate(lines)
        ]
        self._lines += len(lines)
        await self._place.master_for(self._machine).reporting.logs(records)

    # ---------------------------------------------------------------------------------------------------------- training

    async def _save(self) -> None:
        if self._saved == self._epoch:
            return
        await asyncio.sleep(float(self._script["save_s"]))
        size = int(self._script["checkpoint_bytes"])
        report = ReportCheckpoint(
            uuid=self._place.ids.uuid(),
            allocation=self._allocation,
            steps_completed=self._epoch * BATCHES,
            resources={"model.safetensors": size, "optimizer.pt": 2 * size, "trainer.json": 412},
            metadata={"steps_completed": self._epoch * BATCHES, "framework": "torch-2.9"},
        )
        await self._client.checkpoint(report, self._trial, self._run)
        self._saved = self._epoch
        await self._print("INFO", f"saved checkpoint {report.uuid} at epoch {self._epoch}")

    def _fails(self) -> bool:
        """Fails at the epochs of the script."""
        planned = self._script.get("failures", ())
        happened = self._place.storage.failures.get(self._trial, 0)
        if happened >= len(planned) or planned[happened] != self._epoch:
            return False
        self._place.storage.failures[self._trial] = happened + 1
        return True

    def _stop_wanted(self) -> bool:
        noticed = any(notice.kind is not NoticeKind.REBALANCE for notice in self._task.notices)
        return noticed or self._client.stop_wanted()

    async def _pause(self, seconds: float) -> bool:
        """Returns false if it was preempted: a step loop checks after each step."""
        left = seconds
        while left > 0:
            part = min(left, LOOK_S)
            await asyncio.sleep(part)
            left -= part
            if self._machine.dead:
                await asyncio.Event().wait()  # The machine is off: nothing happens after this.
            if self._stop_wanted():
                return left <= 0
        return True
