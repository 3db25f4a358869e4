"""Applies the plan of a pool to the state: one rule of the lifecycle for each decision, in the plan's order."""

from __future__ import annotations

from resolute_master.decision.plan import PoolPlan
from resolute_master.lifecycle import allocations, instances, launch_errors, spending
from resolute_master.lifecycle.step import Step


def apply_plan(step: Step, plan: PoolPlan) -> None:
    """Applies the plan. It makes no decision of its own."""
    for preemption in plan.preempt:
        allocations.preempt(step, preemption.allocation, preemption.reason, for_another=True)
    for placement in plan.starts:
        allocations.assign(step, placement.allocation, placement.slots, placement.agents, placement.reason)
    for reservation in plan.reserve:
        allocations.reserve(step, reservation.allocation, reservation.agents)
    for refused in plan.unaffordable:
        spending.refuse_start(step, refused.account, refused.more, refused.reached, refused.unpriced)
    for failing in plan.give_ups:
        launch_errors.give_up(step, failing.allocation, failing.reason)
    scaling = plan.snapshot.policy.scaling
    if scaling is not None:
        instances.apply_plan(step, scaling, plan.machines.scale)
