"""Advice on the settings of pools, from their histories. The advisor computes it for one pool at a time, and the result is cached.

A request gets the newest advice, and starts a new computation if that is older than `FRESH_S`. If there is no advice yet, the
request waits for it, up to its own limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from statistics import median

from resolute.clock import Clock
from resolute.errors import InvalidInput, ResoluteError
from resolute.wire.rest.advice import GetPoolAdviceResponse, PoolAdvice, SettingChange
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.event_loop import yielding
from resolute_master.forecast.advice import Advice, Advisor, Question
from resolute_master.forecast.history import MOST_ATTEMPTS, History, history
from resolute_master.forecast.run_times import LEAST
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.store.base import Store
from resolute_provisioner.catalogue.shapes import Catalogue
from resolute_provisioner.model import PoolScaling
from resolute_provisioner.offers import price_in_force

log = logging.getLogger(__name__)

FRESH_S = 3600.0
RETRY_S = 300.0
"""Time after a failed attempt until the next one. A history that was too short is read again at each request."""
MAX_WAIT_S = 10.0
"""Longest time that a call of the API waits for a result."""
BOOT_S = 180.0
"""Assumed boot time of a pool in which no machine has joined yet."""


@dataclass(slots=True)
class _KnownOfPool:
    newest: PoolAdvice | None = None
    failed: str = ""
    """The reason why the last attempt gave no advice; "" if it did."""
    rests_until_s: float = -inf
    """Time of the monotonic clock before which no attempt begins."""
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class PoolAdvices:
    """Advice for each pool. `advisor` None: the master was composed without one; the answer contains that. `catalogues`: machine
    types by pool."""

    advisor: Advisor | None = None
    catalogues: Mapping[PoolName, Catalogue] = field(default_factory=dict)
    _pools: dict[PoolName, _KnownOfPool] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of_pool(
        self, engine: Engine, store: Store, policy: PoolPolicy, clock: Clock, *, max_wait_s: float = MAX_WAIT_S
    ) -> GetPoolAdviceResponse:
        """Never raises: the answer contains the reason of missing advice."""
        pool = policy.name
        try:
            scaling = _to_be_advised(policy)
            if self.advisor is None:
                raise InvalidInput("this master has no simulator")
        except InvalidInput as error:
            return GetPoolAdviceResponse(pool=pool, reason=str(error))
        known = self._pools.setdefault(pool, _KnownOfPool())
        if known.task is None and clock.monotonic() >= known.rests_until_s:
            known.task = asyncio.create_task(self._make(known, self.advisor, engine, store, policy, scaling, clock))
        if known.task is not None and known.newest is None:
            # A caller that stops waiting must not cancel the answer of the others.
            await asyncio.wait((known.task,), timeout=max_wait_s)
        return GetPoolAdviceResponse(
            pool=pool, advice=known.newest, reason=known.failed, computing=known.task is not None
        )

    async def _make(
        self,
        known: _KnownOfPool,
        advisor: Advisor,
        engine: Engine,
        store: Store,
        policy: PoolPolicy,
        scaling: PoolScaling,
        clock: Clock,
    ) -> None:
        try:
            async with self._turn:
                now = clock.now()
                past = await _history(engine, store, policy.name, clock)
                if len(past.jobs) < LEAST:
                    known.failed = _too_little(policy.name, past)
                    return
                known.rests_until_s = clock.monotonic() + RETRY_S
                priced, boot_s = _as_learnt(engine, scaling)
                question = Question(
                    pool=replace(policy, scaling=priced),
                    jobs=past.jobs,
                    days=past.days,
                    catalogue=self.catalogues.get(policy.name, Catalogue()),
                    boot_s=boot_s,
                )
                found = await advisor(question)
                known.newest, known.failed = _shown(found, question, now), ""
                known.rests_until_s = clock.monotonic() + FRESH_S
        except ResoluteError as error:
            known.failed = str(error)
        except Exception:
            log.exception("advice on pool %s could not be made", policy.name)
            known.failed = "the simulation has failed, and the master's log has the details"
        finally:
            known.task = None


def _to_be_advised(policy: PoolPolicy) -> PoolScaling:
    """Raises `InvalidInput` with the reason for a pool whose settings do not affect its cost."""
    if policy.scaling is None:
        raise InvalidInput(
            f"pool '{policy.name}' has no provider: the number of its machines does not depend on work, so no setting of it saves "
            "money"
        )
    if not any(offer.slots for offer in policy.scaling.offers):
        raise InvalidInput(f"no machine of pool '{policy.name}' has slots, and only work with slots is simulated")
    return policy.scaling


async def _history(engine: Engine, store: Store, pool: PoolName, clock: Clock) -> History:
    ended = await store.ended_allocations(pool, MOST_ATTEMPTS)
    attempts = await asyncio.to_thread(_attempts, ended, engine.snapshot(pool))
    jobs = {job.id: job for job in await store.jobs(sorted({each.job_id for each in attempts}))}
    return await asyncio.to_thread(history, attempts, jobs, clock.now(), whole=len(ended) < MOST_ATTEMPTS)


def _attempts(ended: Sequence[Allocation], snapshot: PoolSnapshot) -> Sequence[Allocation]:
    """The ended jobs and those that run. A job that ended between the two reads is contained once."""
    run = (each for each in yielding(snapshot.allocations.values()) if each.assigned_at is not None and not each.ended)
    return tuple({each.id: each for each in (*run, *ended)}.values())


def _as_learnt(engine: Engine, scaling: PoolScaling) -> tuple[PoolScaling, float]:
    """The pool with the prices in force, and the time that its machines take to join."""
    beliefs = {b.belief.offer_id: b.belief for b in engine.state.find(PoolBelief, "beliefs_of_pool", scaling.pool)}
    offers = tuple(
        replace(each, price_per_hour=price_in_force(each, beliefs.get(each.offer_id))) for each in scaling.offers
    )
    joined = [found.join_time_s for found in beliefs.values() if found.join_time_s is not None]
    return replace(scaling, offers=offers), median(joined) if joined else BOOT_S


def _too_little(pool: PoolName, past: History) -> str:
    return (
        f"the history of pool '{pool}' is too short: {len(past.jobs)} piece(s) of work with slots have run in it in the last "
        f"{past.days:.1f} days, and advice needs {LEAST}; 'det pool validate FILE --jobs JOBS.csv' judges by jobs of a file"
    )


def _shown(found: Advice, question: Question, now: datetime) -> PoolAdvice:
    return PoolAdvice(
        computed_at=now,
        jobs=found.jobs,
        left_out=found.left_out,
        days=found.days,
        boot_s=question.boot_s,
        cost_a_month=found.cost_a_month,
        wait_mean_s=found.wait_mean_s,
        played=found.played,
        changes=tuple(
            SettingChange(
                key=each.key,
                now=each.now,
                value=each.value,
                saves_a_month=each.saves_a_month,
                share=each.share,
                wait_mean_s=each.wait_mean_s,
            )
            for each in found.savings
        ),
    )
