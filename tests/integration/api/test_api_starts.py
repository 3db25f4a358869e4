"""Estimates of starts where many ask, where one takes long, and where it fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resolute.clock import FixedClock
from resolute.errors import ResoluteError, Unavailable
from resolute_master.api.queue.starts import FAILED, FRESH_S, RESTS, Starts
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.store.memory import MemoryStore
from support.api import World, an_api, settled

POOL = PoolName("default")
CONFIG = {"launch_error": False}
FOR_EVER_S = 3600.0


class PastByHand(MemoryStore):
    """Each estimate reads what has ended once: here it waits until it may, takes its time, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.open = asyncio.Event()
        self.open.set()
        self.reads = 0
        self._begun: asyncio.Queue[None] = asyncio.Queue()
        self.takes_s = 0.0
        self.error: Exception | None = None

    async def ended_allocations(self, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
        self.reads += 1
        self._begun.put_nowait(None)
        await self.open.wait()
        self.clock.advance(self.takes_s)
        if self.error is not None:
            raise self.error
        return await super().ended_allocations(pool, limit)

    async def next_read(self) -> None:
        """Waits until an estimate that was not waited for here before has come as far as it may."""
        await self._begun.get()


async def _waiting(world: World, jobs: int) -> list[Allocation]:
    made = [(await world.create())["jobId"] for _ in range(jobs)]
    await settled(world)
    found = [each for each in world.engine.state.all(Allocation) if each.job_id in made]
    return sorted(found, key=lambda each: made.index(each.job_id))


async def test_however_many_ask_about_jobs_of_their_own_the_next_computation_answers_them_all(tmp_path: Path) -> None:
    store, starts = PastByHand(), Starts()
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        first, second, third = await _waiting(world, 3)

        def ask(allocation: Allocation) -> asyncio.Task[object]:
            return asyncio.create_task(starts.of_one(world.engine, store, allocation, store.clock))

        store.open.clear()
        asked = [ask(first)]
        await store.next_read()
        # The first is being answered already; whoever tries again after a time-out makes the line no longer.
        asked += [ask(each) for each in (second, third, first, second, third) for _ in range(3)]
        gone = ask(second)
        await asyncio.sleep(0)
        gone.cancel()
        store.open.set()
        found = await asyncio.gather(*asked)
        assert store.reads == 2 and None not in found
        # The same cycle: it is known already.
        assert await ask(first) is found[0] and await ask(third) in found and store.reads == 2
        await _waiting(world, 1)
        assert await ask(first) is not None and store.reads == 3


async def test_who_asks_in_a_later_cycle_gets_no_answer_of_an_older_one(tmp_path: Path) -> None:
    store, starts = PastByHand(), Starts()
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        (waiting,) = await _waiting(world, 1)
        store.open.clear()
        before = asyncio.create_task(starts.of_one(world.engine, store, waiting, store.clock))
        await store.next_read()
        await _waiting(world, 1)
        after = asyncio.create_task(starts.of_one(world.engine, store, waiting, store.clock))
        await asyncio.sleep(0)
        store.open.set()
        await asyncio.gather(before, after)
        assert store.reads == 2


async def test_a_list_waits_for_the_answer_that_knows_all_that_waits(tmp_path: Path) -> None:
    store, starts = PastByHand(), Starts(max_wait_s=FOR_EVER_S)
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        for jobs in (1, 2):
            await _waiting(world, 1)
            found = await starts.of_all(world.engine, store, POOL, store.clock)
            assert found is not None and len(found.starts) == jobs
        # An answer that is old and lacks nothing is made anew for those who ask later.
        store.open.clear()
        store.clock.advance(FRESH_S + 1.0)
        assert await starts.of_all(world.engine, store, POOL, store.clock) is found
        store.open.set()


async def test_a_list_waits_a_moment_and_then_takes_the_last_answer(tmp_path: Path) -> None:
    store, starts = PastByHand(), Starts(max_wait_s=0.01)
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        await _waiting(world, 1)
        first = None
        while first is None:
            first = await starts.of_all(world.engine, store, POOL, store.clock)
        assert len(first.starts) == 1
        await _waiting(world, 1)
        store.open.clear()
        for _ in range(3):
            assert await starts.of_all(world.engine, store, POOL, store.clock) is first
        assert store.reads == 2
        store.open.set()
        newer = first
        while newer is first:
            await asyncio.sleep(0)
            found = await starts.of_all(world.engine, store, POOL, store.clock)
            assert found is not None
            newer = found
        assert len(newer.starts) == 2 and store.reads == 2


async def test_attempts_that_fail_rest_as_long_as_others_and_are_told_while_there_is_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, starts = PastByHand(), Starts(max_wait_s=FOR_EVER_S)
    store.takes_s, store.error = 10.0, Unavailable("the store is away")
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        await _waiting(world, 1)
        for _ in range(3):
            with pytest.raises(ResoluteError, match="could not compute when the jobs of pool default start"):
                await starts.of_all(world.engine, store, POOL, store.clock)
        assert store.reads == 1 and "the store is away" in caplog.text
        store.clock.advance(RESTS * 10.0)
        store.error = None
        found = await starts.of_all(world.engine, store, POOL, store.clock)
        assert found is not None and store.reads == 2


async def test_when_a_newer_answer_fails_the_last_one_is_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, starts = PastByHand(), Starts(max_wait_s=FOR_EVER_S)
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        await _waiting(world, 1)
        last = await starts.of_all(world.engine, store, POOL, store.clock)
        await store.next_read()
        await _waiting(world, 1)
        store.takes_s, store.error = 10.0, Unavailable("the store is away")
        assert last is not None and await starts.of_all(world.engine, store, POOL, store.clock) is last
        await store.next_read()
        assert "the store is away" in caplog.text
        for _ in range(3):
            assert await starts.of_all(world.engine, store, POOL, store.clock) is last
            await asyncio.sleep(0)
        assert store.reads == 2
        store.clock.advance(RESTS * 10.0)
        assert await starts.of_all(world.engine, store, POOL, store.clock) is last
        await store.next_read()


async def test_a_job_is_explained_although_its_start_cannot_be(tmp_path: Path) -> None:
    store = PastByHand()
    store.error = Unavailable("the store is away")
    async with an_api(tmp_path, config=CONFIG, store=store) as world:
        (waiting,) = await _waiting(world, 1)
        told = await world.get(f"/api/v1/jobs/{waiting.job_id}/explain")
        assert told["reason"] and told["start"]["basis"] == FAILED.basis and told["start"]["expectedAt"] is None
        # It is not held against the next one.
        store.error = None
        told = await world.get(f"/api/v1/jobs/{waiting.job_id}/explain")
        assert "needs 20 runs" in told["start"]["basis"]
