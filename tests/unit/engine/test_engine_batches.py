"""How many commands a cycle takes follows from how long those before decided, and after many it waits for more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from resolute.clock import LoopClock, SystemClock
from resolute.errors import Unavailable
from resolute_master.domain.commands import CreateUser
from resolute_master.engine.engine import (
    BATCH_LEAST,
    BATCH_LIMIT,
    DECIDE_BUDGET_S,
    GATHER_LEAST,
    GATHER_S,
    CycleTimes,
    Engine,
)
from resolute_master.store.memory import MemoryStore
from resolute_sim.loop import run_virtually
from support.engines import an_engine, running

START = datetime(2026, 1, 1, tzinfo=UTC)


class WorkingClock(SystemClock):
    """Each look at it takes `look_s`, as if something had been computed since the last."""

    def __init__(self) -> None:
        super().__init__()
        self.look_s = 0.0
        self._worked_s = 0.0

    def monotonic(self) -> float:
        self._worked_s += self.look_s
        return time.monotonic() + self._worked_s


async def users(engine: Engine, prefix: str, count: int) -> None:
    names = [f"{prefix}{number}" for number in range(count)]
    await asyncio.gather(*(engine.submit(CreateUser(username=name, password_hash="hash")) for name in names))


async def test_after_long_cycles_few_commands_are_taken_until_many_have_taken_little() -> None:
    clock = WorkingClock()
    taken: list[int] = []

    def note(times: CycleTimes) -> None:
        taken.append(times.commands)

    engine = an_engine(MemoryStore(), clock=clock)
    async with running(engine):
        engine.on_cycle(note)
        await users(engine, "many", BATCH_LIMIT)
        assert max(taken) > BATCH_LEAST, "at first nothing is known to take long"
        clock.look_s = 20 * DECIDE_BUDGET_S
        await users(engine, "slow", BATCH_LIMIT)
        taken.clear()
        await users(engine, "slower", 5 * BATCH_LEAST)
        assert max(taken) <= BATCH_LEAST + 1, "one more is the look at every pool that is due"
        clock.look_s = 0.0
        for number in range(3 * BATCH_LEAST):
            await users(engine, f"lone{number}-", 1)
        taken.clear()
        await users(engine, "burst", BATCH_LIMIT)
        assert taken[0] <= 2 * BATCH_LEAST, "that one command takes little says nothing of two hundred"
        taken.clear()
        for number in range(5):
            await users(engine, f"crowd{number}-", BATCH_LIMIT)
        assert max(taken) > 2 * BATCH_LEAST, "that many take little does"


async def begun_at(engine: Engine, clock: LoopClock, crowds: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """When each cycle began, in seconds, and how many commands it had. `crowds` come at these times."""
    begun: list[tuple[float, int]] = []
    origin = clock.monotonic()
    engine.on_cycle(lambda times: begun.append((round((times.begun_at - START).total_seconds(), 6), times.commands)))
    async with running(engine):
        begun.clear()  # how it starts is no matter here

        async def come(number: int, at: float, count: int) -> None:
            await asyncio.sleep(origin + at - clock.monotonic())
            await users(engine, f"crowd{number}-", count)

        await asyncio.gather(*(come(number, at, count) for number, (at, count) in enumerate(crowds)))
    return begun


def cycles_of(*crowds: tuple[float, int]) -> list[tuple[float, int]]:
    async def alone() -> list[tuple[float, int]]:
        clock = LoopClock(START, asyncio.get_running_loop())
        return await begun_at(an_engine(MemoryStore(), clock=clock), clock, crowds)

    return run_virtually(alone())


def test_who_comes_right_after_a_crowd_is_gathered_with_others() -> None:
    found = cycles_of((1.0, GATHER_LEAST), (1.001, 1), (1.005, 1), (1.0 + GATHER_S - 0.001, 1))
    assert found == [(1.0, GATHER_LEAST), (1.0 + GATHER_S, 3)]


def test_who_is_alone_or_comes_after_a_pause_never_waits() -> None:
    few = GATHER_LEAST - 1
    assert cycles_of((1.0, few), (1.001, few), (1.002, 1)) == [(1.0, few), (1.001, few), (1.002, 1)]
    after = 1.0 + GATHER_S + 0.001
    assert cycles_of((1.0, BATCH_LIMIT), (after, 1)) == [(1.0, BATCH_LIMIT), (after, 1)]


def test_as_many_as_a_cycle_takes_wait_for_no_more() -> None:
    found = cycles_of((1.0, GATHER_LEAST), (1.001, 2 * BATCH_LIMIT + 1))
    second, last = 1.0 + GATHER_S, 1.0 + 2 * GATHER_S
    assert found == [(1.0, GATHER_LEAST), (second, BATCH_LIMIT), (second, BATCH_LIMIT), (last, 1)]


async def test_who_is_gathered_when_the_engine_ends_is_told() -> None:
    engine = an_engine(MemoryStore())
    async with running(engine):
        await users(engine, "crowd", GATHER_LEAST)
        late = asyncio.create_task(engine.submit(CreateUser(username="late", password_hash="hash")))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await late
