"""The requests of a task to the master: they may be lost, answered late, repeated, or arrive long after the end of their sender."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from resolute.errors import FailedPrecondition, LimitExceeded, ResoluteError, Unavailable
from resolute_master.domain import commands as c
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.ids import AllocationId, ContainerId, TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.store.base import MetricOutcome
from resolute_sim.fault_plan import FaultPlan
from resolute_sim.machine import SimulatedMachine
from resolute_sim.master import SimulatedMaster

Result = TypeVar("Result")
Request = Callable[[SimulatedMaster], Awaitable[Result]]

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
LATE_S = (5.0, 400.0)
"""When a repeated request arrives."""


class Site(Protocol):
    """The world as a client sees it."""

    rng: random.Random
    fault_plan: FaultPlan

    def master_for(self, machine: SimulatedMachine) -> SimulatedMaster:
        """Raises `Unavailable` when there is none, or none can be reached."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...

    def violate(self, rule: str, text: str) -> None: ...


class TaskClient:
    """The client of one task on one machine. Methods retry until they get an answer; they raise an error that refuses the
    request."""

    def __init__(self, site: Site, machine: SimulatedMachine, allocation: AllocationId) -> None:
        self._site = site
        self._machine = machine
        self._allocation = allocation

    # -- what a harness asks -----------------------------------------------------------------------------------

    async def rendezvous(self, container: ContainerId) -> int:
        """Meet the other members; the own rank. Raises `FailedPrecondition` when the allocation has ended."""
        await self._call(lambda m: m.engine.submit(c.JoinRendezvous(allocation=self._allocation, container=container)))
        while True:
            allocation = await self._call(self._look)
            if allocation is None or allocation.ended:
                raise FailedPrecondition("the allocation ended before all of its members had joined")
            if all(member.joined for member in allocation.containers):
                return next(member.rank for member in allocation.containers if member.id == container)
            await asyncio.sleep(1.0)

    async def _look(self, master: SimulatedMaster) -> Allocation | None:
        return master.engine.state.get(Allocation, self._allocation)

    def stop_wanted(self) -> bool:
        """The answer of the long poll so far; empty while the master cannot be reached."""
        try:
            master = self._site.master_for(self._machine)
        except Unavailable:
            return False
        allocation = master.engine.state.get(Allocation, self._allocation)
        return allocation is not None and allocation.preempt is not None

    async def acknowledge(self) -> None:
        await self._call(lambda m: m.engine.submit(c.AcknowledgePreemption(allocation=self._allocation)))

    async def early_exit(self, trial: int) -> None:
        await self._call(lambda m: m.engine.submit(c.ReportEarlyExit(trial=TrialId(trial), invalid_hparams=True)))

    async def progress(self, trial: int, value: float) -> None:
        await self._call(lambda m: m.engine.submit(c.ReportProgress(trial=TrialId(trial), progress=value)))

    async def operation(self, trial: int) -> int | None:
        """What to train until; None when there is nothing to do now."""

        async def look(master: SimulatedMaster) -> int | None:
            found = master.engine.state.get(Trial, trial)
            row = None if found is None else master.engine.state.get(SearchTrial, found.task_id)
            if found is None or row is None or row.completed or row.stopped or found.state.stopping:
                return None
            return row.length

        return await self._call(look)

    async def complete(self, trial: int, length: int, metric: float) -> None:
        """Refused when the trial's end was requested meanwhile."""
        command = c.CompleteOperation(trial=TrialId(trial), length=length, metric=metric)
        await self._call(lambda m: m.engine.submit(command))

    async def metrics(self, report: MetricReport) -> None:
        async def send(master: SimulatedMaster) -> None:
            before = _run_of(master, report.trial_id)
            outcome = await master.reporting.metrics(report)
            if report.run_id < before:
                text = f"metrics of run {report.run_id} of trial {report.trial_id} were taken while run {before} was on"
                self._site.violate("safety: reports of older runs are refused", text)
            if outcome is MetricOutcome.CONFLICT:
                text = f"step {report.steps_completed} of trial {report.trial_id} run {report.run_id} conflicts with itself"
                self._site.violate("safety: repeats are harmless", text)

        await self._call(send)

    async def checkpoint(self, report: c.ReportCheckpoint, trial: int, run: int) -> None:
        async def send(master: SimulatedMaster) -> None:
            before = _run_of(master, trial)
            known = master.engine.state.get(Checkpoint, report.uuid) is not None
            await master.engine.submit(report)
            if run < before and not known:
                text = f"checkpoint {report.uuid} of run {run} of trial {trial} was taken while run {before} was on"
                self._site.violate("safety: reports of older runs are refused", text)

        await self._call(send)

    # -- the network -------------------------------------------------------------------------------------------

    async def _call(self, request: Request[Result]) -> Result:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._attempt(request)
            except (Unavailable, LimitExceeded):
                pass
            except asyncio.CancelledError:
                self._maybe_late(request)
                raise
            await asyncio.sleep(pause_s * self._site.rng.uniform(0.5, 1.0))
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _attempt(self, request: Request[Result]) -> Result:
        rng = self._site.rng
        await asyncio.sleep(rng.uniform(0.001, 0.03))
        answer = await self._site.master_for(self._machine).carry(request)
        self._maybe_late(request)
        if rng.random() < self._site.fault_plan.lost_reply_rate:
            raise Unavailable("the answer was lost")
        await asyncio.sleep(rng.uniform(0.001, 0.03))
        return answer

    def _maybe_late(self, request: Request[Result]) -> None:
        if self._site.rng.random() < self._site.fault_plan.late_repeat_rate:
            self._site.spawn(self._late(request))

    async def _late(self, request: Request[Result]) -> None:
        """A late packet, for whose answer no caller waits."""
        await asyncio.sleep(self._site.rng.uniform(*LATE_S))
        try:
            await self._site.master_for(self._machine).carry(request)
        except ResoluteError:
            pass  # refused, or there is no master: both are right


def _run_of(master: SimulatedMaster, trial: int) -> int:
    found = master.engine.state.get(Trial, trial)
    return 0 if found is None else found.run_id
