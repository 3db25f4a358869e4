"""The books of a pool that remembers: kept with every change, over restarts, and found again by a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from resolute.clock import LoopClock
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.usage import Usage
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay_store
from resolute_master.store.memory import MemoryStore
from support.agent_virtual import run_virtually
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, running

START = datetime(2026, 1, 1, tzinfo=UTC)
H = 320.0
REMEMBERS = PoolPolicy(name=DEFAULT, scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, usage_half_life_s=H)
POOLS: Mapping[PoolName, PoolPolicy] = {DEFAULT: REMEMBERS}


class Cluster:
    """One agent and a master that can be ended and started again, in virtual time."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.store = MemoryStore()
        self.clock = LoopClock(START, asyncio.get_running_loop())
        self.starts = 0

    async def start(self, pools: Mapping[PoolName, PoolPolicy] = POOLS) -> None:
        self.starts += 1
        self.engine: Engine = an_engine(self.store, seed=self.starts, clock=self.clock, pools=pools)
        self._life = AsyncExitStack()
        await self._life.enter_async_context(running(self.engine))
        self._stack.push_async_exit(self._life)
        if self.starts == 1:
            self.owners = [await a_user(self.engine, name) for name in ("ada", "bob")]
            self.agent = AgentByHand(self.engine, slots=4)
            await self.agent.register()

    async def restart(self, *, away_s: float = 0.0, pools: Mapping[PoolName, PoolPolicy] = POOLS) -> None:
        """The agent comes back at once, with what it runs."""
        before = self.agent
        await self._life.aclose()
        await asyncio.sleep(away_s)
        await self.start(pools)
        self.agent = await before.returns_to(self.engine)

    async def submit(self, owner: int, slots: int) -> None:
        await an_experiment(self.engine, self.owners[owner], a_config(slots=slots))
        await self.settle()
        for container in self.agent.containers():
            if container.state is ContainerState.ASSIGNED:
                await self.agent.report(container, ContainerState.RUNNING)

    async def end(self, owner: int) -> None:
        """Everything of this user ends well."""
        jobs = {
            job.id for job in self.engine.memory.snapshots[DEFAULT].jobs.values() if job.owner == self.owners[owner]
        }
        for container in self.agent.containers():
            (allocation,) = self.engine.state.find(Allocation, "allocation_of_container", container.id)
            if allocation.job_id in jobs:
                await self.agent.report(container, ContainerState.TERMINATED, Exit(code=0))
        await self.settle()

    async def settle(self) -> None:
        await asyncio.sleep(0.001)

    def books(self) -> dict[UserId, Usage]:
        return {usage.owner: usage for usage in self.engine.state.all(Usage)}


async def a_day(cluster: Cluster, restarts: set[int]) -> dict[UserId, Usage]:
    """Ada holds 3 slots for 100 s and 1 for 4 s (between two measurements), Bob 1 for 207 s."""

    async def perhaps_restart(moment: int) -> None:
        if moment in restarts:
            await cluster.restart()
        await cluster.settle()

    await cluster.start()
    await cluster.submit(0, 3)
    await perhaps_restart(0)
    await cluster.submit(1, 1)
    await asyncio.sleep(99.0)
    await perhaps_restart(1)
    await cluster.end(0)
    await perhaps_restart(2)
    await asyncio.sleep(101.0)
    await cluster.submit(0, 1)
    await asyncio.sleep(4.0)
    await perhaps_restart(3)
    await cluster.end(0)
    await asyncio.sleep(3.0)
    await cluster.end(1)
    await perhaps_restart(4)
    await asyncio.sleep(60.0)
    return cluster.books()


def lived(restarts: set[int]) -> dict[UserId, Usage]:
    async def scenario() -> dict[UserId, Usage]:
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack)
            books = await a_day(cluster, restarts)
            assert (await replay_store(cluster.store, POOLS)).divergence is None
            return books

    return run_virtually(scenario())


def test_the_books_are_exact_and_charged_at_measurements() -> None:
    books = lived(set())
    ada, bob = sorted(books)
    for usage in books.values():
        assert usage.held == 0 and usage.charged == round(usage.average * 16) / 16
        assert (usage.measured_at - START).total_seconds() > 250
    over = 267.02

    def part(begun: float, ended: float) -> float:
        return float(0.5 ** ((over - ended) / H) - 0.5 ** ((over - begun) / H))

    now = (
        books[ada].until(START.replace(minute=4, second=27), H),
        books[bob].until(START.replace(minute=4, second=27), H),
    )
    assert now[0].average == pytest.approx(3 * part(0, 99) + part(200, 204), abs=0.01)
    assert now[1].average == pytest.approx(part(0, 207), abs=0.01)


@pytest.mark.parametrize("restarts", [{0}, {1}, {2}, {3}, {4}, {0, 1, 2, 3, 4}])
def test_a_restart_changes_nothing(restarts: set[int]) -> None:
    without, with_restarts = lived(set()), lived(restarts)
    for owner, usage in without.items():
        again = with_restarts[owner]
        # Deadlines of the new master fall at the same moments; only the split of the integral may differ in the last bit.
        assert (again.held, again.charged, again.measured_at) == (usage.held, usage.charged, usage.measured_at)
        assert again.average == pytest.approx(usage.average, rel=1e-12)


def test_while_the_master_is_away_what_runs_counts() -> None:
    async def scenario() -> tuple[Usage, ...]:
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack)
            await cluster.start()
            await cluster.submit(0, 2)
            await cluster.restart(away_s=H)
            await cluster.settle()
            return cluster.engine.state.all(Usage)

    (usage,) = run_virtually(scenario())
    assert usage.held == 2 and usage.charged == 1.0, "the first thing that a master does is to measure what is overdue"


def test_a_pool_that_is_told_to_forget_forgets_and_one_that_begins_begins_with_what_is_held() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack)
            forgetful = {DEFAULT: replace(REMEMBERS, usage_half_life_s=None)}
            await cluster.start(forgetful)
            await cluster.submit(0, 2)
            await asyncio.sleep(100)
            assert cluster.books() == {}
            await cluster.restart()
            assert [(usage.held, usage.average) for usage in cluster.books().values()] == [(2, 0.0)]
            await asyncio.sleep(100)
            snapshot = cluster.engine.snapshot(DEFAULT)
            assert snapshot.shares is not None
            assert dict(snapshot.shares.used.items()) == {("1",): 0.375, ("1", str(cluster.owners[0])): 0.375}
            await cluster.restart(pools=forgetful)
            assert cluster.books() == {}

    run_virtually(scenario())


def test_what_nobody_holds_and_hardly_anybody_has_used_takes_no_rows() -> None:
    async def scenario() -> tuple[int, int]:
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack)
            await cluster.start()
            await cluster.submit(0, 1)
            await asyncio.sleep(30)
            await cluster.end(0)
            await asyncio.sleep(8 * H)
            before = cluster.engine.memory.sequence
            assert cluster.books() == {}
            await asyncio.sleep(H)
            return before, cluster.engine.memory.sequence

    before, after = run_virtually(scenario())
    assert after - before <= H / 60 + 1, "and no measurements: only the safety pass"
