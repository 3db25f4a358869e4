"""When what waits will start, for those who ask: computed beside the engine, in a thread that leaves it room.

Who asks about one job waits for its estimate. A list gets the newest answer of its pool at once, whatever its age, and has it
refreshed: with ten thousand jobs in the queue an answer takes the master many seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from resolute.clock import Clock
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
"""That all courses together may take, about a millisecond each."""
FRESH_S = 30.0
"""An answer of the same cycle is given again for so long: meanwhile time has passed, and what was expected may not have come."""
PATIENCE_S = 1.0
"""A list waits so long for a newer answer."""
RESTS = 4.0
"""Lists have a pool foreseen again after so many times as long as it took: a fifth of a processor at most, however many ask."""
WORKS_S, BREATHES_S = 0.005, 0.003
"""The thread gives the interpreter away for `BREATHES_S` after each `WORKS_S`: the event loop need not wrest it away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Of everything that waited in a pool after the engine's cycle `cycle`, at `at`."""

    cycle: int
    at: datetime
    starts: Mapping[AllocationId, Estimate]
    took_s: float


@dataclass(slots=True)
class _Of:
    """What is known of one pool."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One computation at a time."""
    newest: Foreseen | None = None
    refresh: asyncio.Task[None] | None = None


class Starts:
    """Remembers the newest answer for each pool."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._pools: dict[PoolName, _Of] = {}
        self._patience_s = patience_s

    async def of_one(self, engine: Engine, store: Store, allocation: Allocation, clock: Clock) -> Estimate | None:
        """None when it does not wait, any more."""
        known = self._pools.setdefault(allocation.pool, _Of())
        async with known.turn:
            newest, now = known.newest, clock.now()
            if newest is not None and _current(newest, engine, now):
                return newest.starts.get(allocation.id)
            return (await _foresee(engine, store, allocation.pool, now, of=(allocation.id,))).get(allocation.id)

    async def of_all(self, engine: Engine, store: Store, pool: PoolName, clock: Clock) -> Foreseen | None:
        """The newest answer; None while there is none. Computed anew if that takes no longer than `PATIENCE_S`, else for those who
        ask later."""
        known = self._pools.setdefault(pool, _Of())
        if known.refresh is not None and known.refresh.done():
            known.refresh = None  # nobody waited for it any more
        if known.refresh is None and (known.newest is None or _stale(known.newest, engine, clock.now())):
            known.refresh = asyncio.create_task(_refresh(known, engine, store, pool, clock))
        refresh = known.refresh
        if refresh is not None:
            done, _ = await asyncio.wait((refresh,), timeout=self._patience_s)
            if done:
                refresh.result()  # its error is the answer
        return known.newest


async def _refresh(known: _Of, engine: Engine, store: Store, pool: PoolName, clock: Clock) -> None:
    async with known.turn:
        cycle, now = engine.memory.sequence, clock.now()
        starts = await _foresee(engine, store, pool, now)
        known.newest = Foreseen(cycle=cycle, at=now, starts=starts, took_s=(clock.now() - now).total_seconds())


def _current(newest: Foreseen, engine: Engine, now: datetime) -> bool:
    return newest.cycle == engine.memory.sequence and (now - newest.at).total_seconds() <= FRESH_S


def _stale(newest: Foreseen, engine: Engine, now: datetime) -> bool:
    return not _current(newest, engine, now) and (now - newest.at).total_seconds() >= newest.took_s * (1.0 + RESTS)


class _Abandoned(Exception):
    """Nobody waits for the answer: the master ends."""


class _Breath:
    """What the thread does between two decisions."""

    def __init__(self) -> None:
        self.abandoned = threading.Event()
        self._since_s = time.monotonic()

    def __call__(self) -> None:
        if self.abandoned.is_set():
            raise _Abandoned
        if time.monotonic() - self._since_s > WORKS_S:
            time.sleep(BREATHES_S)
            self._since_s = time.monotonic()


async def _foresee(
    engine: Engine, store: Store, pool: PoolName, now: datetime, *, of: Collection[AllocationId] | None = None
) -> Mapping[AllocationId, Estimate]:
    state, seed = _virtual(engine, pool, now), engine.memory.sequence
    if not len(state.snapshot.queue):
        return {}
    runs = await run_times(store, pool)
    breath = _Breath()
    try:
        return await asyncio.to_thread(
            estimates, state, runs, seed=seed, of=of, courses=COURSES, decisions=DECISIONS, breathe=breath
        )
    except asyncio.CancelledError:
        breath.abandoned.set()
        raise


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
