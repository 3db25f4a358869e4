"""How many commands a cycle takes follows from how long those before decided."""

from __future__ import annotations

import asyncio
import time

from resolute.clock import SystemClock
from resolute_master.domain.commands import CreateUser
from resolute_master.engine.engine import BATCH_LEAST, BATCH_LIMIT, DECIDE_BUDGET_S, CycleTimes, Engine
from resolute_master.store.memory import MemoryStore
from support.engines import an_engine, running


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
