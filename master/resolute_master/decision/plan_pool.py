"""The decision about one pool: every rule, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from resolute_master.decision import budgets, giving_up, markets, occupation, supply
from resolute_master.decision.plan import MachinePlan, PoolPlan
from resolute_master.decision.view import PoolView
from resolute_master.scheduler.schedule import run
from resolute_provisioner.model import Demand, InstanceView, OfferBelief, PoolScaling, ScalePlan
from resolute_provisioner.planning.plan import plan_scale

Planner = Callable[[PoolScaling, Sequence[InstanceView], Demand, Mapping[str, OfferBelief], datetime], ScalePlan]
"""`plan_scale`, or a function that caches its answers."""

MachinePlanner = Callable[[PoolView, PoolScaling, Demand], MachinePlan]
"""`plan_machines`, or a function that detects when its answer cannot differ from the last one."""


def plan_machines(
    view: PoolView, scaling: PoolScaling, demand: Demand, *, planner: Planner = plan_scale
) -> MachinePlan:
    """The machines to launch and to end, after the allocations of `view` have been placed. `scaling` is limited by the budget of
    the pool; `demand` is the work that waits for machines."""
    held, machines = bool(view.snapshot.held), view.machines or ()
    scaling = budgets.buying_nothing(scaling) if held else scaling
    demand, give_ups = giving_up.fail_waiting(view, scaling, demand)
    chosen = markets.choose(view, scaling, demand)
    scale = planner(scaling, chosen.instances, chosen.demand, view.beliefs, view.now)
    scale = markets.with_drains(scale, chosen)
    scale = budgets.starting_nothing(scale, machines) if held else scale
    scale = budgets.within(view, scaling, scale)
    # The planner looks at machines that are requested already, and gives up on those of this plan in its next.
    answered_by = view.now + timedelta(seconds=scaling.boot_timeout_s) if scale.launches else None
    moments = [at for at in (chosen.revisit_at, answered_by) if at is not None]
    return MachinePlan(scale=scale, give_ups=give_ups, revisit_at=min(moments, default=None))


def plan_pool(view: PoolView, *, machine_planner: MachinePlanner = plan_machines) -> PoolPlan:
    """Which allocations start, are preempted or fail, and which machines are launched or end. Equal views give equal plans.

    The scheduler decides within the budget of the pool. A start that its accounts cannot pay is omitted. The
    machines are planned for what still waits then, as if the starts and preemptions had been carried out; after a cut plan they
    are not planned, since not all that waits has been looked at.
    """
    snapshot, scaling = view.snapshot, view.policy.scaling if view.machines is not None else None
    if scaling is not None and view.machines is not None:
        scaling = budgets.payable(scaling, view.budgets.pool, view.beliefs, view.now)
        snapshot = snapshot.with_supply(supply.of(scaling, view.machines, view.beliefs, view.now))
    outcome, unaffordable = budgets.affordable(view, run(snapshot, starts=view.starts))
    plan, machines = outcome.plan, MachinePlan()
    if scaling is not None and not plan.cut:
        machines = machine_planner(occupation.after(view, plan), scaling, plan.demand)
    return PoolPlan(snapshot=snapshot, outcome=outcome, unaffordable=unaffordable, machines=machines)
