"""When what waits will start, for those who ask: computed beside the engine, once for each state of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.ids import AllocationId, JobId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.engine.engine import Engine
from resolute_master.foresight.estimate import Estimate, estimates
from resolute_master.foresight.pool import VirtualPool
from resolute_master.foresight.run_times import MOST, RunTimes
from resolute_master.store.base import Store

COURSES = 19
"""The extremes of so many hold 90 % (`foresight.estimate.COURSES`)."""
DECISIONS = 6_000
"""That all courses together may take, about a millisecond each in a pool of a hundred machines."""


class Starts:
    """Remembers the answer of the newest cycle for each pool; whoever asks meanwhile waits for the same answer."""

    def __init__(self) -> None:
        self._known: dict[PoolName, tuple[int, datetime, Mapping[AllocationId, Estimate]]] = {}
        self._turns: dict[PoolName, asyncio.Lock] = {}

    async def of(self, engine: Engine, store: Store, pool: PoolName, now: datetime) -> Mapping[AllocationId, Estimate]:
        """Of everything that waits in the pool."""
        async with self._turns.setdefault(pool, asyncio.Lock()):
            cycle = engine.memory.sequence
            known = self._known.get(pool)
            if known is None or known[0] != cycle or (now - known[1]).total_seconds() > FRESH_S:
                state = _virtual(engine, pool, now)
                found: Mapping[AllocationId, Estimate] = {}
                if len(state.snapshot.queue):
                    runs = await run_times(store, pool)
                    found = await asyncio.to_thread(
                        estimates, state, runs, seed=cycle, courses=COURSES, decisions=DECISIONS
                    )
                known = self._known[pool] = cycle, now, found
            return known[2]


def _virtual(engine: Engine, pool: PoolName, now: datetime) -> VirtualPool:
    snapshot = engine.snapshot(pool).at(now)
    scaling, machines = snapshot.policy.scaling, engine.memory.machines
    mine = [instance.id for instance in engine.state.find(Instance, "instances_of_pool", pool)]
    return VirtualPool(
        policy=snapshot.policy,
        now=now,
        snapshot=snapshot,
        offers={offer.offer_id: offer for offer in scaling.offers} if scaling is not None else {},
        machines={id_: machines[id_] for id_ in sorted(mine) if id_ in machines},
        beliefs={b.belief.offer_id: b.belief for b in engine.state.find(PoolBelief, "beliefs_of_pool", pool)},
    )


async def run_times(store: Store, pool: PoolName) -> RunTimes:
    """Of the newest runs of the pool that came to their own end, well or in failure."""
    ended = [each for each in await store.ended_allocations(MOST) if each.pool == pool and _by_itself(each)]
    jobs = {job.id: job for job in await store.jobs(sorted({each.job_id for each in ended}))}
    return await asyncio.to_thread(_run_times, ended, jobs)


def _by_itself(allocation: Allocation) -> bool:
    """What was asked to leave would have run longer: its time says nothing of how long such work runs."""
    return allocation.preempt is None and allocation.killed_at is None


def _run_times(ended: Sequence[Allocation], jobs: Mapping[JobId, Job]) -> RunTimes:
    found = RunTimes()
    for each in reversed(ended):
        job = jobs.get(each.job_id)
        if job is not None and each.assigned_at is not None and each.ended_at is not None:
            found.add(int(job.owner), each.slots_needed, (each.ended_at - each.assigned_at).total_seconds())
    return found
