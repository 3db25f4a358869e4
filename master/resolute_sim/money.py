"""What the users of a world know of money: pools that move work for its sake, budgets, limits and deadlines.

Drawn from the world's seed after everything else, so that a world without money is the same world.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from resolute.errors import ResoluteError
from resolute.wire.states import ExperimentState
from resolute_master.domain import commands as c
from resolute_master.domain.account import Account, Limits, Owner, account_id
from resolute_master.domain.administration import SetBudget, SetMaxCost
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine import pool_view
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.model import Consolidation, Disruption, Market, Offer, PoolScaling, SpotFallback, Window
from resolute_sim.checkers.deadlines import declared_length_s
from resolute_sim.workload import EPOCH, Submission, Workload
from resolute_sim.world import World

WORKSPACE = 1
"""Where all work of a world is."""

SOON = timedelta(hours=1)
"""In calm times work waits for a budget period that starts within this time, and for no later one."""

EVERY_DAY = frozenset(range(7))


def with_money(rng: random.Random, workload: Workload) -> Workload:
    """The same work and pools; in some worlds with cost limits."""
    if rng.random() < 0.3:
        return workload
    pools = {name: _thrifty(rng, policy) for name, policy in workload.pools.items()}
    submissions = tuple(_limited(rng, each, pools[each.pool]) for each in workload.submissions)
    budgets = [_budget(rng, Owner.WORKSPACE, str(WORKSPACE))] if rng.random() < 0.15 else []
    return replace(workload, pools=pools, submissions=submissions, budgets=tuple(budgets))


def with_time(rng: random.Random, workload: Workload) -> Workload:
    """The same work; in some worlds all of it has a feasible deadline and a correct length, and only the choice of a market can
    make it late. Drawn after everything else, so that the others stay as they are."""
    if rng.random() < 0.8:
        return workload
    pools = {name: _roomy(rng, policy) for name, policy in workload.pools.items()}
    submissions = tuple(_punctual(rng, each) for each in workload.submissions)
    return replace(workload, pools=pools, submissions=submissions, budgets=())


def _roomy(rng: random.Random, policy: PoolPolicy) -> PoolPolicy:
    if policy.scaling is None:
        return policy
    scaling = policy.scaling
    if not scaling.has_both_markets:
        scaling = _on_both_markets(rng, scaling)
    return replace(policy, scaling=replace(scaling, max_instances=16), budget=Limits())


def _punctual(rng: random.Random, submission: Submission) -> Submission:
    data = {
        **submission.config["data"],
        "failures": [],
        "worker_fails_after_s": 0.0,
        "invalid_below": 0.0,
        "deaf": False,
        "stuck_s": 0.0,
    }
    length_s = declared_length_s(data)
    due = EPOCH + timedelta(seconds=submission.at_s + length_s * rng.uniform(1.1, 2.0) + rng.uniform(700.0, 1500.0))
    resources = {
        **submission.config["resources"],
        "deadline": due.isoformat(),
        "estimated_duration": f"{ceil(length_s)}s",
    }
    resources.pop("max_cost", None)
    config = {**submission.config, "data": data, "resources": resources}
    return replace(submission, config=config, activate=True, max_slots=None)


# -- pools -------------------------------------------------------------------------------------------------------------


def _thrifty(rng: random.Random, policy: PoolPolicy) -> PoolPolicy:
    if policy.scaling is None:
        return policy
    scaling = _on_both_markets(rng, policy.scaling) if rng.random() < 0.5 else policy.scaling
    if rng.random() < 0.5:
        moving = Consolidation(margin=rng.choice((0.5, 2.0)), restart_s=rng.choice((5.0, 30.0, 120.0)))
        scaling = replace(scaling, consolidation=moving)
    if rng.random() < 0.3:
        scaling = replace(scaling, max_idle_cost=rng.uniform(0.02, 0.3))
    if rng.random() < 0.3:
        scaling = replace(scaling, disruption=_disruption(rng))
    budget = _limits(rng) if rng.random() < 0.3 else Limits()
    return replace(policy, scaling=scaling, budget=budget)


def _on_both_markets(rng: random.Random, scaling: PoolScaling) -> PoolScaling:
    fallback = SpotFallback(
        after_s=rng.choice((0.0, 30.0, 200.0)), return_after_s=rng.choice((None, 30.0, 120.0, 600.0))
    )
    offers = tuple(each for offer in scaling.offers for each in _twins(rng, offer))
    return replace(scaling, offers=offers, spot_fallback=fallback)


def _twins(rng: random.Random, offer: Offer) -> tuple[Offer, Offer]:
    price = offer.price_per_hour
    spot = None if price is None else round(price * rng.uniform(0.3, 1.1), 3)
    return (
        replace(offer, offer_id=f"{offer.offer_id}-on-demand", market=Market.ON_DEMAND),
        replace(offer, offer_id=f"{offer.offer_id}-spot", market=Market.SPOT, price_per_hour=spot),
    )


def _disruption(rng: random.Random) -> Disruption:
    start_s = rng.uniform(0.0, 86_400.0)
    night = Window(weekdays=EVERY_DAY, start_s=start_s, end_s=(start_s + 43_200.0) % 86_400.0)
    return Disruption(max_per_hour=rng.choice((None, 1, 3)), windows=rng.choice(((), (night,))))


def _limits(rng: random.Random) -> Limits:
    """As much as a few machines cost in an hour, or far less."""
    return Limits(
        per_day=rng.uniform(0.3, 4.0),
        per_month=rng.uniform(1.0, 6.0) if rng.random() < 0.3 else None,
    )


def _budget(rng: random.Random, owner: Owner, name: str) -> SetBudget:
    limits = _limits(rng)
    return SetBudget(owner=owner, name=name, per_day=limits.per_day, per_month=limits.per_month)


# -- experiments -------------------------------------------------------------------------------------------------------


def _limited(rng: random.Random, submission: Submission, pool: PoolPolicy) -> Submission:
    more: dict[str, Any] = {}
    searcher, data = submission.config["searcher"], submission.config["data"]
    if rng.random() < 0.5:
        # Only work that runs for long is worth moving.
        data = {**data, "step_s": rng.choice((60.0, 180.0))}
    length_s = data["steps"] * data["step_s"]
    if rng.random() < 0.35:
        due = EPOCH + timedelta(seconds=submission.at_s + length_s * rng.uniform(1.1, 4.0) + rng.uniform(0.0, 600.0))
        more["deadline"] = due.isoformat()
        if rng.random() < 0.7:
            more["estimated_duration"] = f"{round(length_s * rng.uniform(0.5, 1.5)) + 1}s"
        if rng.random() < 0.5:
            searcher = {**searcher, "max_length": {"batches": data["steps"]}}
    # A task that is stuck ends when it likes: no limit could be kept.
    if rng.random() < 0.35 and _priced(pool) and not data["stuck_s"]:
        hours = length_s * searcher.get("max_trials", 1) / 3600.0
        slots = submission.config["resources"]["slots_per_trial"]
        # A slot's hour costs about 1; a minute of it is what the first save is taken to need.
        more["max_cost"] = round(max(1, slots) * (hours * rng.uniform(0.2, 1.3) + rng.uniform(0.02, 0.05)), 3)
    resources = {**submission.config["resources"], **more}
    return replace(submission, config={**submission.config, "searcher": searcher, "data": data, "resources": resources})


def _priced(pool: PoolPolicy) -> bool:
    """Elsewhere a limit is refused."""
    return pool.scaling is not None and all(offer.price_per_hour is not None for offer in pool.scaling.offers)


# -- what users do about it --------------------------------------------------------------------------------------------


def request_about_money(
    rng: random.Random, state: ClusterState, pools: Mapping[PoolName, PoolPolicy]
) -> c.Command | None:
    """A user raises the limit of an experiment, or changes the budget of a pool; never to less than what may be spent already."""
    limited = [each for each in state.all(Experiment) if each.max_cost is not None]
    if limited and rng.random() < 0.6:
        one = rng.choice(limited)
        more = None if rng.random() < 0.2 else (one.max_cost or 0.0) * rng.uniform(1.1, 3.0)
        return SetMaxCost(experiment=one.id, max_cost=more)
    held = [name for name, policy in sorted(pools.items()) if policy.budget]
    return _budget(rng, Owner.POOL, rng.choice(held)) if held else None


async def relent(world: World) -> None:
    """In calm times money holds nothing up for long: limits are lifted, or what has reached its own is given up."""
    if world.master is None:
        return
    engine, now = world.master.engine, world.clock.now()
    for request in tuple(_relief(world.rng, engine.state, engine.pools, now)):
        try:
            await world.submit(request)
        except ResoluteError as error:
            world.tell(f"user   is told: {error}")


def _relief(
    rng: random.Random, state: ClusterState, pools: Mapping[PoolName, PoolPolicy], now: datetime
) -> Iterator[c.Command]:
    for account in state.all(Account):
        if account.owner is Owner.EXPERIMENT:
            continue
        if any(until is None or until > now + SOON for until in _held_until(state, pools, account, now)):
            yield SetBudget(owner=account.owner, name=account.name, per_day=None, per_month=None)
    for experiment in state.all(Experiment):
        of_experiment = state.get(Account, account_id(Owner.EXPERIMENT, experiment.id))
        if experiment.state is not ExperimentState.PAUSED or of_experiment is None or of_experiment.wind_down is None:
            continue
        if rng.random() < 0.5:
            yield c.CancelExperiment(experiment=experiment.id)
        else:
            yield SetMaxCost(experiment=experiment.id, max_cost=None)
            yield c.ActivateExperiment(experiment=experiment.id)


def _held_until(
    state: ClusterState, pools: Mapping[PoolName, PoolPolicy], account: Account, now: datetime
) -> list[datetime | None]:
    """Until when a budget winds down or, of a pool that needs machines, prevents their purchase."""
    if account.wind_down is not None:
        return [account.wind_down.until]
    policy = pools.get(PoolName(account.name)) if account.owner is Owner.POOL else None
    if policy is None or policy.scaling is None:
        return []
    waiting = any(a.pool == policy.name and a.assigned_at is None and not a.ended for a in state.all(Allocation))
    there = [each for each in state.find(Instance, "instances_of_pool", policy.name) if not each.over]
    if not waiting and len(there) >= policy.scaling.min_instances:
        return []
    return [each.until for each in pool_view.payable(state, policy.scaling, now).unpaid]
