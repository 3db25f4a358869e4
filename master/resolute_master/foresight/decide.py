"""Who decides. `Production` does in one decision what a live master does in one cycle of a pool, with the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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
        wakes = [wake for wake in (plan.revisit_at, scale.revisit_at) if wake is not None]
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
