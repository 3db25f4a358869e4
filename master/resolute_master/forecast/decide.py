"""The decisions about a virtual pool. `Production` and `LazyProduction` call `plan_pool`, as a live master does in each cycle."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from resolute_master.decision.plan import GiveUp, MachinePlan, PoolPlan
from resolute_master.decision.plan_pool import plan_machines, plan_pool
from resolute_master.decision.view import PoolView
from resolute_master.domain.copies import replace
from resolute_master.forecast.pool import Decision, VirtualPool
from resolute_provisioner.model import Demand, PoolScaling


class Decider(Protocol):
    """Reads a pool, applies placements, preemptions and reservations to it, and returns them with the remaining orders.

    Launches and terminations are in the answer only: the driver carries them out.
    """

    def decide(self, pool: VirtualPool) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """Decides like a live master."""

    learns: bool = True
    """Whether refusals and interruptions affect decisions."""

    def decide(self, pool: VirtualPool) -> Decision:
        plan = plan_pool(pool.view(learns=self.learns))
        return _applied(pool, plan)


@dataclass(slots=True)
class LazyProduction:
    """Decides as `Production` does, and plans the machines only where the plan can differ from the last one. For one simulation.

    A pool in which nothing is submitted any more is at rest once its machines have been planned: what it can buy is bought, and the
    rest waits for room. That changes when work comes back into the queue, when a machine has lost its last work (another may take
    its place) or is gone, when a budget closes or opens the pool, and when the plan said that time alone changes it. Between those
    the scheduler decides alone, at a fraction of the price. What is not seen: a machine on its way that is released because its
    gang found room before, which delays no other work.
    """

    _queued: int | None = None
    """`VirtualPool.queued` when the machines were planned last; None: they have not been."""
    _machines: frozenset[str] = frozenset()
    _without_work: frozenset[str] = frozenset()
    _held: str = ""
    _revisit_at: datetime | None = None
    _opening: Decision | None = None
    """A decision that is made and applied already: the next answer."""

    def opened(self, pool: VirtualPool) -> LazyProduction:
        """Decides now, once for many simulations that begin in the same state: each takes a copy of the pool and of the answer
        here, whose first decision will be this one."""
        opening = self.decide(pool)
        return replace(self, _opening=opening)

    @property
    def give_ups(self) -> tuple[GiveUp, ...]:
        """Give-ups of the first decision, if it was made by `opened`."""
        return () if self._opening is None else self._opening.give_ups

    def copy(self) -> LazyProduction:
        return replace(self)

    def decide(self, pool: VirtualPool) -> Decision:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        queued = pool.queued

        def machines(view: PoolView, scaling: PoolScaling, demand: Demand) -> MachinePlan:
            if not self._may_differ(view, queued):
                return MachinePlan(revisit_at=self._revisit_at)
            found = plan_machines(view, scaling, demand)
            moments = (found.scale.revisit_at, found.revisit_at)
            self._revisit_at = min((at for at in moments if at is not None), default=None)
            return found

        plan = plan_pool(pool.view(), machine_planner=machines)
        return _applied(pool, plan)

    def _may_differ(self, view: PoolView, queued: int) -> bool:
        all_machines = view.machines or ()
        machines = frozenset(each.instance_id for each in all_machines)
        without_work = frozenset(each.instance_id for each in all_machines if each.idle_since is not None)
        due = self._revisit_at is not None and view.now >= self._revisit_at
        differs = (
            self._queued != queued
            or due
            or self._held != view.snapshot.held
            or not self._machines <= machines
            or (not without_work <= self._without_work and _something_waits(view))
        )
        # What has begun to work since is news once more when it stops.
        self._machines, self._without_work, self._held = machines, without_work, view.snapshot.held
        if differs:
            self._queued = queued
        return differs


def _something_waits(view: PoolView) -> bool:
    """Whether allocations are pending after the placements in `view.changed`."""
    placed = sum(each.assigned_at == view.now and not each.leaving for each in view.changed.values())
    return sum(len(line) for line in view.snapshot.queue.values()) > placed


def _applied(pool: VirtualPool, plan: PoolPlan) -> Decision:
    pool.apply_schedule(plan.starts, plan.preempt, plan.reserve)
    return Decision.of(plan)
