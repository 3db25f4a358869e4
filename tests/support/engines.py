"""An engine with the memory store, and scripted reports of an agent: everything above a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from resolute.clock import Clock, SystemClock
from resolute.ids import SeededIds
from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.commands import (
    CreateExperiment,
    CreateUser,
    RecordLaunch,
    RegisterAgent,
    ReportContainer,
)
from resolute_master.domain.ids import AgentId, ExperimentId, InstanceId, PoolName, UserId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store
from resolute_provisioner.model import Observed
from support.cluster import device

DEFAULT = PoolName("default")
POOLS: Mapping[PoolName, PoolPolicy] = {DEFAULT: PoolPolicy(name=DEFAULT)}


def a_config(*, slots: int = 1, trials: int = 1, restarts: int = 0, **resources: Any) -> dict[str, Any]:
    """The parts of a complete configuration that the rules read."""
    searcher: dict[str, Any] = {"name": "single", "metric": "loss", "smaller_is_better": True}
    if trials > 1:
        searcher |= {"name": "random", "max_trials": trials, "max_concurrent_trials": 0}
    return {
        "name": "an experiment",
        "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
        "searcher": searcher,
        "resources": {"slots_per_trial": slots, **resources},
        "max_restarts": restarts,
    }


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    await engine.start()
    task = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def an_engine(store: Store, *, seed: int = 1, clock: Clock | None = None, **settings: Any) -> Engine:
    given: dict[str, Any] = {"pools": POOLS, "version": "0", **settings}
    return Engine(store=store, clock=clock or SystemClock(), ids=SeededIds(seed), **given)


async def a_user(engine: Engine, name: str = "ada") -> UserId:
    user: UserId = await engine.submit(CreateUser(username=name, password_hash="hash"))
    return user


async def an_experiment(
    engine: Engine,
    owner: UserId,
    config: Mapping[str, Any] | None = None,
    *,
    pool: PoolName = DEFAULT,
    priority: int = 42,
) -> ExperimentId:
    """Creates and activates an experiment."""
    command = CreateExperiment(
        owner=owner,
        config=config or a_config(),
        original_config="",
        context_hash="",
        pool=pool,
        priority=priority,
        weight=1.0,
        max_slots=None,
        seed=7,
        activate=True,
    )
    id_: ExperimentId = await engine.submit(command)
    return id_


class AgentByHand:
    """Registers and reports like an agent, with increasing sequence numbers."""

    def __init__(
        self,
        engine: Engine,
        name: str = "agent-1",
        *,
        slots: int = 2,
        incarnation: str = "first",
        pool: PoolName = DEFAULT,
        instance: InstanceId | None = None,
        key: str = "",
    ) -> None:
        """`key` is the digest of its credential, if the name is bound to one."""
        self._engine = engine
        self.key = key
        self.id = AgentId(name)
        self.instance = instance
        self.pool = pool
        self.slots = slots
        self.incarnation = incarnation
        self.sequence = 0

    async def register(self, *reports: ContainerReport) -> tuple[str, ...]:
        command = RegisterAgent(
            agent=self.id,
            pool=self.pool,
            incarnation=self.incarnation,
            devices=tuple(device(i) for i in range(self.slots)),
            address="127.0.0.1",
            version="0",
            instance=self.instance,
            reports=reports,
            key=self.key,
        )
        expected: tuple[str, ...] = await self._engine.submit(command)
        return expected

    async def report(self, container: Container, state: ContainerState, exit_: Exit | None = None) -> None:
        self.sequence += 1
        report = ContainerReport(
            container_id=container.id,
            allocation_id="",
            state=state,
            sequence=self.sequence,
            at=SystemClock().now(),
            exit=exit_,
        )
        await self._engine.submit(ReportContainer(agent=self.id, incarnation=self.incarnation, report=report))

    async def end(self, container: Container, code: int = 0) -> None:
        await self.report(container, ContainerState.TERMINATED, Exit(code=code))

    def containers(self) -> tuple[Container, ...]:
        """Live allocations on this agent."""
        found = self._engine.state.find(Allocation, "allocations_on_agent", self.id)
        return tuple(c for a in found for c in a.containers if c.agent == self.id and not c.ended)

    async def run_all(self, code: int = 0) -> int:
        """Runs all containers on this agent and ends them with the code. Returns their number."""
        here = self.containers()
        for container in here:
            await self.report(container, ContainerState.RUNNING)
            await self.report(container, ContainerState.TERMINATED, Exit(code=code))
        return len(here)

    async def returns_to(self, engine: Engine) -> AgentByHand:
        """The same agent process at a restarted master: it reports all of its containers."""
        again = AgentByHand(
            engine, self.id, slots=self.slots, incarnation=self.incarnation, pool=self.pool, instance=self.instance
        )
        again.sequence = self.sequence
        reports: list[ContainerReport] = []
        for container in again.containers():
            again.sequence += 1
            reports.append(
                ContainerReport(
                    container_id=container.id,
                    allocation_id="",
                    state=container.state,
                    sequence=again.sequence,
                    at=SystemClock().now(),
                )
            )
        await again.register(*reports)
        return again

    def restarted(self) -> AgentByHand:
        """The same agent, as a new process."""
        again = AgentByHand(
            self._engine,
            self.id,
            slots=self.slots,
            incarnation=self.incarnation + "'",
            pool=self.pool,
            instance=self.instance,
        )
        again.sequence = self.sequence
        return again


async def launched(engine: Engine, machine: Instance, now: datetime) -> None:
    """The cloud confirms the requested machine, which is paid for from now on."""
    await engine.submit(
        RecordLaunch(instance=machine.id, provider_id=machine.id, observed=Observed.RUNNING, paid_from=now)
    )


async def joined(engine: Engine, machine: Instance, *, incarnation: str = "first") -> AgentByHand:
    """The registered agent of a running machine, with its slots."""
    agent = AgentByHand(
        engine,
        machine.id,
        slots=machine.slots,
        incarnation=incarnation,
        pool=machine.pool,
        instance=machine.id,
    )
    await agent.register()
    return agent
