"""Who decides. `Production` does in one decision what a live master does in one cycle of a pool, with the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import InstanceId
from resolute_master.engine import supply
from resolute_master.foresight.pool import Decision, VirtualPool
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.schedule import schedule
from resolute_provisioner.model import OfferBelief, ScalePlan
from resolute_provisioner.planning.plan import plan_scale


class Decider(Protocol):
    """Reads a pool, applies what it places, preempts and reserves to it, and says what it did and what else is to be done.

    Launches and terminations are in the answer only: the driver carries them out.
    """

    def decide(self, pool: VirtualPool) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """The scheduler's plan, applied; then the planner's, for what still waits. As `engine.cycle` does."""

    learns: bool = True
    """Without, what refusals and interruptions teach is not looked at."""

    def decide(self, pool: VirtualPool) -> Decision:
        beliefs = pool.beliefs if self.learns else {}
        plan = _schedule(pool, beliefs)
        pool.apply_schedule(plan.place, plan.preempt, plan.reserve)
        scaling = pool.policy.scaling
        scale = ScalePlan()
        if scaling is not None:
            scale = plan_scale(scaling, tuple(pool.machines.values()), plan.demand, beliefs, pool.now)
        return _decision(plan, scale, scale.revisit_at)


@dataclass(slots=True)
class Sparing:
    """Decides as `Production` does, and asks the planner only where its answer can differ from its last one. For one course.

    A pool in which nothing is submitted any more is at rest once the planner has spoken: what it can buy is bought, and the rest
    waits for room. That changes when work comes back into the queue, when a machine has lost its last work (the planner may
    put another in its place) or is gone, and when the planner said that time alone changes it. Between those the scheduler
    decides alone, at a fraction of the price. What is not seen: a machine on its way that is given back because its gang
    found room before, which delays nobody.
    """

    _queued: int | None = None
    """`VirtualPool.queued` when the planner spoke last; None: it has not."""
    _machines: frozenset[InstanceId] = frozenset()
    _without_work: frozenset[InstanceId] = frozenset()
    _revisit_at: datetime | None = None
    _opening: Decision | None = None
    """Made and applied already; the next answer."""

    def opened(self, pool: VirtualPool) -> Sparing:
        """Decides now, once for many courses that begin in the same state: each takes a copy of the pool and of the answer here,
        whose first decision will be this one."""
        opening = self.decide(pool)
        return replace(self, _opening=opening)

    def copy(self) -> Sparing:
        return replace(self)

    def decide(self, pool: VirtualPool) -> Decision:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        plan = _schedule(pool, pool.beliefs)
        pool.apply_schedule(plan.place, plan.preempt, plan.reserve)
        scale = ScalePlan()
        if pool.policy.scaling is not None and self._may_differ(pool):
            machines = tuple(pool.machines.values())
            scale = plan_scale(pool.policy.scaling, machines, plan.demand, pool.beliefs, pool.now)
            self._revisit_at = scale.revisit_at
        return _decision(plan, scale, self._revisit_at)

    def _may_differ(self, pool: VirtualPool) -> bool:
        machines = frozenset(pool.machines)
        without_work = frozenset(id_ for id_, view in pool.machines.items() if view.idle_since is not None)
        due = self._revisit_at is not None and pool.now >= self._revisit_at
        waits = len(pool.snapshot.queue) > 0
        differs = (
            self._queued != pool.queued
            or due
            or not self._machines <= machines
            or (waits and not without_work <= self._without_work)
        )
        # What has begun to work since is news once more when it stops.
        self._machines, self._without_work = machines, without_work
        if differs:
            self._queued = pool.queued
        return differs


def _decision(plan: Plan, scale: ScalePlan, planner_wakes: datetime | None) -> Decision:
    wakes = [wake for wake in (plan.revisit_at, planner_wakes) if wake is not None]
    return Decision(
        place=plan.place,
        preempt=plan.preempt,
        reserve=plan.reserve,
        launches=scale.launches,
        terminations=scale.terminations,
        revisit_at=min(wakes, default=None),
    )


def _schedule(pool: VirtualPool, beliefs: Mapping[str, OfferBelief]) -> Plan:
    if not len(pool.snapshot.queue):
        return Plan()  # what the scheduler says of an empty queue; most events find it empty
    snapshot = pool.snapshot.at(pool.now)
    scaling = pool.policy.scaling
    if scaling is not None:
        snapshot = snapshot.with_supply(supply.of(scaling, tuple(pool.machines.values()), beliefs, pool.now))
    return schedule(snapshot)
