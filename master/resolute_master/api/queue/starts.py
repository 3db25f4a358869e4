"""Estimated starts of waiting jobs, computed in a thread that yields to the engine.

A request about one job waits for its estimate. Requests that arrive during a computation share the next one, so no request
waits for more than a few computations. A list gets the newest estimates of its pool at once, whatever their age, and starts a
refresh: with ten thousand jobs in the queue a computation takes many seconds. If jobs are pending that the newest estimates do
not contain, the list waits a moment for a computation in progress.

Estimates are an addition to other answers. A failure is logged, and shown in place of the start.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from resolute.clock import Clock
from resolute.errors import ResoluteError
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.engine.engine import Engine
from resolute_master.forecast.estimate import Estimate, estimates
from resolute_master.forecast.present import present_pool
from resolute_master.forecast.run_times import MOST, RunTimes
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

FRESH_S = 30.0
"""The time for which an answer of the same cycle is reused: expected events may not have happened since."""
MAX_WAIT_S = 1.0
"""Maximum time that a list waits for an answer about all pending work of its pool."""
RESTS = 4.0
"""A list renews the forecast of a pool after this multiple of the time that the last one took: at most a fifth of a processor."""
WORK_S, YIELD_S = 0.005, 0.003
"""The thread releases the interpreter for `YIELD_S` after each `WORK_S`, so that the event loop need not wait for it."""
FAILED = Estimate(basis="the master could not compute the estimate; its log has the details")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The estimates for all pending allocations of a pool after the engine's cycle `cycle`, at `at`."""

    cycle: int
    at: datetime
    starts: Mapping[AllocationId, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The estimate for one allocation; `start` is None if it was not pending."""

    cycle: int
    at: datetime
    start: Estimate | None


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Allocations of separate requests that one computation answers. It began after cycle `cycle`; None if it has not begun."""

    of: set[AllocationId]
    task: asyncio.Task[Mapping[AllocationId, Estimate | None]]
    cycle: int | None = None


@dataclass(slots=True)
class _KnownOfPool:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One computation at a time."""
    newest: Foreseen | None = None
    refresh: asyncio.Task[None] | None = None
    failed: bool = False
    """Whether the last refresh failed."""
    rests_until_s: float = -inf
    """Time of the monotonic clock before which no refresh begins."""
    answers: dict[AllocationId, _Answer] = field(default_factory=dict)
    """Answers about one job, of the newest cycle with a question."""
    gathering: _Batch | None = None
    """Waits for its turn; later questions join it."""
    begun: _Batch | None = None


class Starts:
    """Keeps the newest estimates of each pool."""

    def __init__(self, *, max_wait_s: float = MAX_WAIT_S) -> None:
        self._pools: dict[PoolName, _KnownOfPool] = {}
        self._max_wait_s = max_wait_s

    async def of_one(self, engine: Engine, store: Store, allocation: Allocation, clock: Clock) -> Estimate | None:
        """The estimate for one allocation, computed in the present cycle or a later one; None if it is not pending."""
        known, id_ = self._pools.setdefault(allocation.pool, _KnownOfPool()), allocation.id
        found = _remembered(known, id_, engine, clock.now())
        if found is not None:
            return found.start
        batch = known.begun
        if batch is None or batch.cycle != engine.memory.sequence or id_ not in batch.of:
            batch = known.gathering
            if batch is None or batch.task.done():
                task = asyncio.create_task(_answer_together(known, engine, store, allocation.pool, clock))
                batch = known.gathering = _Batch(of=set(), task=task)
            batch.of.add(id_)
        # A caller that stops waiting must not cancel the answer of the others.
        return (await asyncio.shield(batch.task)).get(id_)

    async def of_all(self, engine: Engine, store: Store, pool: PoolName, clock: Clock) -> Foreseen | None:
        """The newest estimates of the pool, whatever their age; None while there are none. The call starts a refresh for later
        callers, unless the last one was too recent (`RESTS`). If pending jobs are missing in the estimates, it waits for a
        refresh in progress, at most `MAX_WAIT_S`. Raises `ResoluteError` when all attempts so far have failed."""
        known = self._pools.setdefault(pool, _KnownOfPool())
        if known.refresh is not None and known.refresh.done():
            known.refresh = None
        if known.refresh is None and _stale(known, engine, clock):
            known.refresh = asyncio.create_task(_refresh(known, engine, store, pool, clock))
        if known.refresh is not None and _lacks(known.newest, engine, pool):
            await asyncio.wait((known.refresh,), timeout=self._max_wait_s)
        if known.newest is None and known.failed:
            raise ResoluteError(
                f"the master could not compute when the jobs of pool {pool} start, and its log has the details"
            )
        return known.newest


async def _answer_together(
    known: _KnownOfPool, engine: Engine, store: Store, pool: PoolName, clock: Clock
) -> Mapping[AllocationId, Estimate | None]:
    """The answers of the batch that collects requests, once the pool has a turn for it."""
    async with known.turn:
        batch, known.gathering = known.gathering, None
        assert batch is not None, "a batch gathers until its task has a turn"
        cycle, now = engine.memory.sequence, clock.now()
        known.begun, batch.cycle = batch, cycle
        known.answers = {id_: each for id_, each in known.answers.items() if _current(each, engine, now)}
        found = {id_: _remembered(known, id_, engine, now) for id_ in batch.of}
        told = {id_: each.start for id_, each in found.items() if each is not None}
        unknown = sorted(batch.of - told.keys())
        try:
            starts = await _foresee(engine, store, pool, now, of=unknown) if unknown else {}
            foreseen = {id_: starts.get(id_) for id_ in unknown}
            known.answers |= {id_: _Answer(cycle=cycle, at=now, start=start) for id_, start in foreseen.items()}
            return {**told, **foreseen}
        except Exception:
            log.exception("the starts of %d allocation(s) in pool %s could not be foreseen", len(unknown), pool)
            return {**told, **dict.fromkeys(unknown, FAILED)}
        finally:
            known.begun = None


async def _refresh(known: _KnownOfPool, engine: Engine, store: Store, pool: PoolName, clock: Clock) -> None:
    async with known.turn:
        cycle, now, begun_s = engine.memory.sequence, clock.now(), clock.monotonic()
        try:
            starts = await _foresee(engine, store, pool, now)
            known.newest, known.failed = Foreseen(cycle=cycle, at=now, starts=starts), False
        except Exception:
            known.failed = True
            log.exception("the starts in pool %s could not be foreseen", pool)
        ended_s = clock.monotonic()
        known.rests_until_s = ended_s + RESTS * (ended_s - begun_s)


def _remembered(known: _KnownOfPool, id_: AllocationId, engine: Engine, now: datetime) -> _Answer | None:
    """The present answer about one allocation; None if it has to be computed."""
    newest, alone = known.newest, known.answers.get(id_)
    if newest is not None and _current(newest, engine, now):
        return _Answer(cycle=newest.cycle, at=newest.at, start=newest.starts.get(id_))
    return alone if alone is not None and _current(alone, engine, now) else None


def _current(found: Foreseen | _Answer, engine: Engine, now: datetime) -> bool:
    return found.cycle == engine.memory.sequence and (now - found.at).total_seconds() <= FRESH_S


def _stale(known: _KnownOfPool, engine: Engine, clock: Clock) -> bool:
    """Whether the estimates for lists are due for a refresh."""
    if clock.monotonic() < known.rests_until_s:
        return False
    return known.newest is None or not _current(known.newest, engine, clock.now())


def _lacks(newest: Foreseen | None, engine: Engine, pool: PoolName) -> bool:
    """Whether pending allocations are missing in the estimates."""
    if newest is None or newest.cycle == engine.memory.sequence:
        return newest is None
    snapshot = engine.snapshot(pool)
    unknown = (
        key.allocation for _, keys in snapshot.queue.items() for key in keys if key.allocation not in newest.starts
    )
    # What waits here for a job that has moved to another pool is not foreseen.
    return any(snapshot.allocations[id_].job_id in snapshot.jobs for id_ in unknown)


class _Abandoned(Exception):
    """Raised when the master ends and no caller waits for the answer."""


class CooperativeYield:
    """Releases the interpreter for other threads between two decisions."""

    def __init__(self) -> None:
        self.abandoned = threading.Event()
        self._since_s = time.monotonic()

    def __call__(self) -> None:
        if self.abandoned.is_set():
            raise _Abandoned
        if time.monotonic() - self._since_s > WORK_S:
            time.sleep(YIELD_S)
            self._since_s = time.monotonic()


async def _foresee(
    engine: Engine, store: Store, pool: PoolName, now: datetime, *, of: Collection[AllocationId] | None = None
) -> Mapping[AllocationId, Estimate]:
    state, seed = present_pool(engine.memory, pool, now), engine.memory.sequence
    if not len(state.snapshot.queue):
        return {}
    runs = await run_times(store, pool)
    yielding = CooperativeYield()
    try:
        return await asyncio.to_thread(estimates, state, runs, seed=seed, of=of, yield_control=yielding)
    except asyncio.CancelledError:
        yielding.abandoned.set()
        raise


async def run_times(store: Store, pool: PoolName) -> RunTimes:
    """Run times of the newest runs of the pool that ended by themselves, successfully or in failure."""
    ended = [each for each in await store.ended_allocations(pool, MOST) if _by_itself(each)]
    jobs = {job.id: job for job in await store.jobs(sorted({each.job_id for each in ended}))}
    return await asyncio.to_thread(_run_times, ended, jobs)


def _by_itself(allocation: Allocation) -> bool:
    """Whether a run ended by itself. A preempted run would have been longer, so its time is no sample."""
    return allocation.preempt is None and allocation.killed_at is None


def _run_times(ended: Sequence[Allocation], jobs: Mapping[JobId, Job]) -> RunTimes:
    found = RunTimes()
    for each in reversed(ended):
        job = jobs.get(each.job_id)
        if job is not None and each.assigned_at is not None and each.ended_at is not None:
            found.add(int(job.owner), each.slots_needed, (each.ended_at - each.assigned_at).total_seconds())
    return found
