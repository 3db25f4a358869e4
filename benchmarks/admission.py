"""Admissions per second through the whole engine: small, short workloads from many queues.

The workload is the one published for queue controllers of Kubernetes: 15,000 workloads in 30 queues, and 50,000 in 1,000. They
arrive within a minute, each uses one slot for 0.2 to 1 s, and 5 % of them can run at once. A queue is a user, and the users are
members of 30 workspaces; the pool divides hierarchically (workspace, user, job), as cohorts divide their quota. Each workload is an
experiment with one trial: rules, search, snapshot, scheduler, journal with its chain of digests, and commit. An admission is an
allocation that was placed, committed and ordered from its agent.

Time is virtual; a commit takes `COMMIT_S`, so that commands queue up meanwhile as they do for a disk. The benchmark simulates the
agents, and their work is part of the figure. The first load runs once more on SQLite in real time, as a closed loop: the number of
present workloads is twice the number of slots.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Spread, Target
from resolute.clock import Clock, LoopClock, SystemClock
from resolute.ids import SeededIds
from resolute.wire.agent_link import ContainerReport, Device, Exit
from resolute.wire.states import ContainerState, SlotKind
from resolute_master.domain.administration import CreateProject, CreateWorkspace
from resolute_master.domain.change import Change
from resolute_master.domain.commands import CreateExperiment, CreateUser, RegisterAgent, ReportContainer
from resolute_master.domain.effects import StartContainer
from resolute_master.domain.ids import AgentId, PoolName, UserId
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.engine.engine import Engine
from resolute_master.garbage import YOUNG, survivors_frozen
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from resolute_master.store.sql import open_store, sqlite_url
from resolute_sim.loop import run_virtually

POOL = PoolName("default")
WORKSPACES = 30
SLOTS = 8
AT_ONCE = 0.05
ARRIVE_WITHIN_S = 60.0
RUN_S = (0.2, 1.0)
COMMIT_S = 0.005
LEAST = 1_000.0
SEED = 1
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    workloads: int
    queues: int

    @property
    def at_once(self) -> int:
        return round(self.workloads * AT_ONCE)


LOADS = (Load(workloads=15_000, queues=30), Load(workloads=50_000, queues=1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Resources that one run has used in this process, from the first arrival to the last end."""

    allocations: int
    cycles: int
    wall_s: float
    processor_s: float


def main() -> list[Row]:
    rows = [_row(load, "in memory, virtual time", run_virtually(_in_memory(load))) for load in LOADS]
    with tempfile.TemporaryDirectory() as directory:
        on_sqlite = asyncio.run(_on_sqlite(LOADS[0], sqlite_url(Path(directory) / "master.db")))
    return [*rows, _row(LOADS[0], "on SQLite, real time", on_sqlite)]


def _row(load: Load, how: str, found: Admitted) -> Row:
    rate = found.allocations / found.wall_s
    return Row(
        name=f"{load.workloads:,} workloads in {load.queues:,} queues, {how}",
        subject=Spread.one(rate, "admissions a second"),
        result=rate,
        unit="a second",
        target=Target(at_least=LEAST),
        notes=(
            f"{1000 * found.processor_s / found.allocations:.2f} ms of processor time each, "
            f"{found.allocations / found.cycles:.1f} a cycle"
        ),
    )


class _SlowStore(MemoryStore):
    """A store whose commits take virtual time."""

    async def commit(self, change: Change) -> None:
        await asyncio.sleep(COMMIT_S)
        await super().commit(change)


async def _in_memory(load: Load) -> Admitted:
    clock = LoopClock(START, asyncio.get_running_loop())
    return await _run(_SlowStore(), clock, load, ARRIVE_WITHIN_S)


async def _on_sqlite(load: Load, url: str) -> Admitted:
    store = await open_store(url)
    try:
        return await _run(store, SystemClock(), load, 0.0)
    finally:
        await store.close()


async def _run(store: Store, clock: Clock, load: Load, within_s: float) -> Admitted:
    policy = PoolPolicy(name=POOL, scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True)
    engine = Engine(store=store, clock=clock, ids=SeededIds(SEED), pools={POOL: policy}, version="bench")
    with survivors_frozen():
        await engine.start()
        engine.on_commit(_collect)
        serving = asyncio.create_task(engine.run())
        players = _Players(engine, clock, load)
        await players.prepare()
        cycles, wall, processor = engine.cycles, time.perf_counter(), time.process_time()
        await players.play(within_s)
        found = Admitted(
            allocations=players.admitted,
            cycles=engine.cycles - cycles,
            wall_s=time.perf_counter() - wall,
            processor_s=time.process_time() - processor,
        )
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    gc.collect()
    assert found.allocations == load.workloads, "every workload is admitted once"
    return found


def _collect(change: Change) -> None:
    """Collects garbage by count. The master collects in its pauses (`resolute_master.garbage`), which are virtual here. The figure
    includes the time of the collections."""
    if gc.get_count()[0] >= YOUNG:
        gc.collect(0)
        gc.freeze()


class _Players:
    """Creates the submitting users and the agents."""

    def __init__(self, engine: Engine, clock: Clock, load: Load) -> None:
        self._engine = engine
        self._clock = clock
        self._load = load
        self._random = random.Random(SEED)
        self._users: list[UserId] = []
        self._sequence: dict[AgentId, int] = {}
        self._projects: list[tuple[int, int]] = []
        """Creates the users, each in a workspace."""
        self._group = asyncio.TaskGroup()
        self._alive = asyncio.Semaphore(2 * load.at_once)
        self.admitted = 0

    async def prepare(self) -> None:
        for number in range(self._load.queues):
            self._users.append(await self._engine.submit(CreateUser(username=f"user-{number}", password_hash="hash")))
        for number in range(WORKSPACES):
            owner, name = self._users[0], f"queues-{number}"
            workspace = await self._engine.submit(CreateWorkspace(name=name, owner=owner))
            project = await self._engine.submit(CreateProject(workspace=workspace, name=name, owner=owner))
            self._projects.append((workspace, project))
        for number in range(self._load.at_once // SLOTS):
            await self._join(AgentId(f"agent-{number:04}"))
        self._engine.on_commit(self._committed)

    async def play(self, within_s: float) -> None:
        """Runs cycles until all workloads have ended."""
        arrivals = sorted((self._random.uniform(0, within_s), number) for number in range(self._load.workloads))
        begun = self._clock.monotonic()
        async with self._group:
            for at, number in arrivals:
                if (left_s := begun + at - self._clock.monotonic()) > 0:
                    await asyncio.sleep(left_s)
                await self._alive.acquire()
                self._group.create_task(self._submit(number))

    async def _join(self, agent: AgentId) -> None:
        devices = tuple(Device(index=i, kind=SlotKind.CPU, brand="bench", uuid=f"{agent}-{i}") for i in range(SLOTS))
        self._sequence[agent] = 0
        await self._engine.submit(
            RegisterAgent(
                agent=agent,
                pool=POOL,
                incarnation="first",
                devices=devices,
                address="127.0.0.1",
                version="0",
                instance=None,
                reports=(),
            )
        )

    async def _submit(self, number: int) -> None:
        queue = number % self._load.queues
        workspace, project = self._projects[queue % WORKSPACES]
        await self._engine.submit(
            CreateExperiment(
                owner=self._users[queue],
                config=_CONFIG,
                original_config="",
                context_hash="",
                pool=POOL,
                priority=42,
                weight=1.0,
                max_slots=None,
                seed=number,
                activate=True,
                workspace_id=workspace,
                project_id=project,
            )
        )

    def _committed(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, StartContainer):
                self.admitted += 1
                self._group.create_task(self._carry_out(effect))

    async def _carry_out(self, order: StartContainer) -> None:
        await self._report(order, ContainerState.RUNNING, None)
        await asyncio.sleep(self._random.uniform(*RUN_S))
        await self._report(order, ContainerState.TERMINATED, Exit(code=0))
        self._alive.release()

    async def _report(self, order: StartContainer, state: ContainerState, exit_: Exit | None) -> None:
        self._sequence[order.agent] += 1
        report = ContainerReport(
            container_id=order.container,
            allocation_id=order.allocation,
            state=state,
            sequence=self._sequence[order.agent],
            at=self._clock.now(),
            exit=exit_,
        )
        await self._engine.submit(ReportContainer(agent=order.agent, incarnation="first", report=report))


_CONFIG: dict[str, Any] = {
    "name": "a workload",
    "hyperparameters": {},
    "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True},
    "resources": {"slots_per_trial": 1},
    "max_restarts": 0,
}
