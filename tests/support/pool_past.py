"""An elastic pool with a history that would cost less with other settings, and the twin as its advisor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from resolute.clock import FixedClock
from resolute_master.api.queue.advice import PoolAdvices
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.advice import Advice, Question
from resolute_master.store.memory import MemoryStore
from resolute_sim.twin.advisor_process import answer
from support.cluster import T0, an_allocation, at
from support.paid_cluster import a_paid_pool
from support.pools import a_job

POOL = PoolName("default")
NOW_S = 10 * 86_400.0


class Past(MemoryStore):
    """A store with ended runs of ten minutes, one every `every_s` up to `NOW_S`."""

    def __init__(self, runs: int, *, every_s: float = 7200.0) -> None:
        super().__init__()
        self.clock = FixedClock(T0 + timedelta(seconds=NOW_S))
        starts = [NOW_S - every_s * number for number in range(1, runs + 1)]
        self._ended = tuple(
            an_allocation(
                f"9.t{number}.1",
                job_id=JobId("past"),
                requested_at=at(start),
                assigned_at=at(start + 60.0),
                ended_at=at(start + 660.0),
            )
            for number, start in enumerate(starts)
        )

    async def ended_allocations(self, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
        return (*self._ended, *await super().ended_allocations(pool, limit))[:limit] if pool == POOL else ()

    async def jobs(self, ids: Sequence[JobId]) -> tuple[Job, ...]:
        mine = (a_job("past"),) if JobId("past") in ids else ()
        return (*mine, *await super().jobs(ids))


def kept_pool(*, price: float | None = 3.6) -> dict[PoolName, PoolPolicy]:
    """A pool that always keeps one machine and never consolidates."""
    pools = a_paid_pool(price=price)
    scaling = pools[POOL].scaling
    assert scaling is not None
    return {POOL: replace(pools[POOL], scaling=replace(scaling, min_instances=1, idle_learnt=True))}


class Twin:
    """An advisor in this process. Each answer waits until `open` is set."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def __call__(self, question: Question) -> Advice:
        self.questions.append(question)
        self.asked.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return await asyncio.to_thread(answer, question)


def advised(twin: Twin) -> PoolAdvices:
    return PoolAdvices(advisor=twin)
