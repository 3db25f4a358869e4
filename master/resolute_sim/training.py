"""What a task does: our harness as the master sees it, with coroutines for processes and a table for the file system."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol

from resolute.clock import Clock
from resolute.errors import ResoluteError
from resolute.grace_period import GracePeriod
from resolute.ids import IdSource
from resolute.wire.states import NoticeKind
from resolute_agent.runtimes.scripted import ScriptedTask
from resolute_master.domain.commands import ReportCheckpoint
from resolute_master.domain.ids import AllocationId, ContainerId, TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_sim.client import Site, TaskClient
from resolute_sim.event_log import Entry, Event, EventLog, LiveTask
from resolute_sim.machine import SimulatedMachine
from resolute_sim.workload import METRIC, TIME_METRIC

FENCED = 3
"""Exit code of a run that has been replaced by a newer one."""


@dataclass(slots=True)
class Gang:
    """How the chief's end reaches the other members."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0


@dataclass(slots=True)
class Storage:
    """What the tasks have on disks that outlive every machine."""

    checkpoints: dict[str, int] = field(default_factory=dict)
    """uuid -> steps of the state inside."""
    failures: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Number of scripted failures of each trial so far."""
    gangs: dict[str, Gang] = field(default_factory=lambda: defaultdict(Gang))


class TrainingSite(Site, Protocol):
    clock: Clock
    ids: IdSource
    event_log: EventLog
    storage: Storage

    def task_started(self, task: LiveTask) -> None: ...

    def resumed(self, trial: int, run: int, *, told: int, uuid: str) -> None: ...


class Training:
    """One container's program."""

    def __init__(self, site: TrainingSite, machine: SimulatedMachine, task: ScriptedTask) -> None:
        environment = task.spec.environment
        self._site = site
        self._machine = machine
        self._task = task
        self._data: dict[str, Any] = json.loads(environment["DET_EXPERIMENT_CONFIG"])["data"]
        self._hparams: dict[str, Any] = json.loads(environment["DET_HPARAMS"])
        self._trial = int(environment["DET_TRIAL_ID"])
        self._run = int(environment["DET_TRIAL_RUN_ID"])
        self._step = int(environment["DET_STEPS_COMPLETED"])
        self._uuid = environment.get("DET_LATEST_CHECKPOINT", "")
        self._allocation = AllocationId(environment["DET_ALLOCATION_ID"])
        self._container = ContainerId(task.spec.container_id)
        self._client = TaskClient(site, machine, self._allocation)
        self._gang = site.storage.gangs[self._allocation]
        self._saved_at = self._step
        self._advised = False
        self._grace_period = GracePeriod()
        self._grace_period.asked_whether_to_save()
        self._chief = False
        task.polite = not self._data["stuck_s"]
        task.stuck_s = self._data["stuck_s"]

    async def __call__(self) -> int:
        site = self._site
        live = LiveTask(
            trial=self._trial,
            run=self._run,
            allocation=self._allocation,
            container=self._container,
            machine=self._machine.id,
            slots=self._task.spec.slots,
            since=site.clock.now(),
        )
        site.task_started(live)
        site.event_log.began(live)
        why = "killed"
        try:
            self._task.write("line 0\n")
            rank = await self._client.rendezvous(self._container)
            self._chief = rank == 0
            code = await (self._lead() if self._chief else self._follow())
            self._task.write("line 1\n")
            why = f"exit {code}"
            return code
        except ResoluteError as error:
            why = f"refused: {error}"
            return FENCED
        finally:
            site.event_log.ended(self._container, site.clock.now())
            if self._chief:
                self._note(Event.END, why=why)

    # -- the chief ---------------------------------------------------------------------------------------------

    async def _lead(self) -> int:
        self._site.resumed(self._trial, self._run, told=self._step, uuid=self._uuid)
        self._note(Event.START, uuid=self._uuid)
        if self._hparams["x"] < self._data["invalid_below"]:
            return await self._invalid()
        code = await self._train()
        self._gang.code = code
        self._gang.over.set()
        return code

    async def _invalid(self) -> int:
        await self._client.early_exit(self._trial)
        if not self._data["leaves_when_invalid"]:
            await asyncio.sleep(3600.0)
        self._gang.over.set()
        return 0

    async def _train(self) -> int:
        if self._data.get("by_length"):
            return await self._train_by_length()
        return await self._train_until(self._data["steps"]) or 0

    async def _train_by_length(self) -> int:
        """Train each length that the search gives, until it gives no more."""
        while (length := await self._client.operation(self._trial)) is not None:
            code = await self._train_until(length)
            if code is not None:
                return code
            await self._save()
            await self._client.complete(self._trial, length, self._loss())
        await self._client.acknowledge()
        return 0

    async def _train_until(self, steps: int) -> int | None:
        """None when it has come so far; else the code that it exits with."""
        data = self._data
        while self._step < steps:
            await self._pause(data["step_s"])
            self._step += 1
            self._note(Event.STEP)
            await self._report("training", {"value": self._step})
            if self._fails_here():
                return 1
            if self._step % data["save_every"] == 0 or self._step == steps:
                await self._validate_and_save()
            if self._stop_wanted():
                await self._client.acknowledge()
                await self._save()
                return 0
            if self._advised_to_save():
                await self._save()
        await self._validate_and_save()
        return None

    async def _validate_and_save(self) -> None:
        await self._report("validation", {METRIC: self._loss(), TIME_METRIC: self._step})
        await self._client.progress(self._trial, self._step / self._data["steps"])
        await self._save()

    def _loss(self) -> float:
        """Falls with the steps; if scripted, to a value that a hyperparameter determines."""
        floor: float = self._hparams["x"] if self._data.get("floor_by_x") else 0.0
        return floor + 1.0 / (1 + self._step)

    def _fails_here(self) -> bool:
        happened = self._site.storage.failures
        if self._data.get("lost_above", 1.0) < self._hparams["x"]:
            return True
        failures = self._data["failures"]
        if happened[self._trial] < len(failures) and failures[happened[self._trial]] == self._step:
            happened[self._trial] += 1
            return True
        return False

    def _stop_wanted(self) -> bool:
        if self._data["deaf"]:
            return False
        ends = [notice.deadline for notice in self._task.notices if notice.kind is not NoticeKind.REBALANCE]
        if not ends or ends[-1] is None or not self._data["trains_on_after_notice"]:
            return bool(ends) or self._client.stop_wanted()
        now = self._site.clock.now()
        return self._grace_period.over(self._site.clock.monotonic(), (ends[-1] - now).total_seconds())

    def _advised_to_save(self) -> bool:
        if self._advised or not self._task.notices:
            return False
        self._advised = True
        self._grace_period.save_requested(self._site.clock.monotonic())
        return True

    async def _save(self) -> None:
        if self._saved_at == self._step:
            return
        await self._pause(self._data["save_s"])
        uuid = self._site.ids.uuid()
        self._site.storage.checkpoints[uuid] = self._step
        self._note(Event.SAVE, uuid=uuid)
        report = ReportCheckpoint(
            uuid=uuid,
            allocation=self._allocation,
            steps_completed=self._step,
            resources={"state": 1000 + self._step},
            metadata={"steps_completed": self._step},
        )
        await self._client.checkpoint(report, self._trial, self._run)
        self._saved_at = self._step
        self._note(Event.SAVED, uuid=uuid)

    async def _report(self, group: str, metrics: dict[str, Any]) -> None:
        await self._client.metrics(
            MetricReport(
                trial_id=TrialId(self._trial),
                run_id=self._run,
                group=group,
                steps_completed=self._step,
                reported_at=self._site.clock.now(),
                metrics=metrics,
            )
        )

    # -- the others --------------------------------------------------------------------------------------------

    async def _follow(self) -> int:
        """Work until the chief ends; a killed chief reports nothing, so that only the master can end the rest."""
        fails_after_s = self._data["worker_fails_after_s"]
        if fails_after_s and self._site.storage.failures[self._trial] == 0:
            try:
                async with asyncio.timeout(fails_after_s):
                    await self._gang.over.wait()
            except TimeoutError:
                self._site.storage.failures[self._trial] += 1
                return 1
        await self._gang.over.wait()
        await self._pause(self._site.rng.uniform(0.0, 2.0))
        return self._gang.code

    # -- helpers -----------------------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._machine.dead:
            await asyncio.Event().wait()  # the power is off: nothing after this happens

    def _note(self, event: Event, *, uuid: str = "", why: str = "") -> None:
        self._site.event_log.add(
            Entry(
                at=self._site.clock.now(),
                event=event,
                trial=self._trial,
                run=self._run,
                allocation=self._allocation,
                container=self._container,
                step=self._step,
                chief=self._chief,
                uuid=uuid,
                why=why,
            )
        )
