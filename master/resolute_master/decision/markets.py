"""Converts a pool's work into inputs of the choice between spot and on demand. Pure.

They contain the known length of work with a deadline, and running work, which may have to move. Pools with one market only cost
nothing here.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from resolute_master.decision.view import PoolView
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, JobId
from resolute_provisioner.model import Demand, Gang, InstanceView, Market, PoolScaling, ScalePlan
from resolute_provisioner.planning import rebalance
from resolute_provisioner.planning.deadline import MarketChoice, Work
from resolute_provisioner.planning.disruption import leave
from resolute_provisioner.planning.markets import (
    MarketPlan,
    Running,
    ToBeHad,
    Waiting,
    choice_of_running,
    choice_of_start,
    choices,
    held_back,
    plan_markets,
    there,
    where_there_is_room,
)

DEFAULT_JOIN_TIME_S = 120.0
"""Assumed time to join, for an offer of which no machine has joined yet."""

START_S = 60.0
"""Time from the machine's joining to the first new step: the start of the task and the restore of its checkpoint."""

SENTENCES = 8
"""Allocations of one job that are explained."""


def choose(view: PoolView, pool: PoolScaling, demand: Demand) -> MarketPlan:
    """`demand` and the pool's machines with their markets, the moves that begin, and the machines to drain now: for a move, or
    because a replacement of a machine at risk is ready."""
    machines = view.machines or ()
    at_risk = rebalance.drains(machines)
    if not pool.has_both_markets:
        return MarketPlan(demand=demand, instances=machines, drains=at_risk)
    waiting: dict[str, Waiting] = {}
    for gang in demand.gangs:
        allocation = view.allocation(gang.token)
        if allocation is not None:
            waiting[gang.token] = _waiting(view, pool, allocation)
    running = tuple(_running(view, pool))
    found = plan_markets(pool, machines, demand, waiting, running, view.beliefs, view.now)
    named = {each.instance_id for each in at_risk}
    return replace(found, drains=(*at_risk, *(each for each in found.drains if each.instance_id not in named)))


def with_drains(plan: ScalePlan, markets: MarketPlan) -> ScalePlan:
    """`plan` with the drains of the choice of markets. A machine that ends anyway gets no further reason."""
    named = {each.instance_id for each in plan.terminations}
    drains = tuple(each for each in markets.drains if each.instance_id not in named)
    if not drains:
        return plan
    return replace(plan, terminations=tuple(sorted((*plan.terminations, *drains), key=lambda each: each.instance_id)))


def sentences(view: PoolView, job: JobId) -> tuple[str, ...]:
    """The reasons why a job waits for spot, runs on demand, or is about to move: one for each of its first allocations; none if
    there is no choice between markets."""
    scaling = view.policy.scaling
    if scaling is None or not scaling.has_both_markets:
        return ()
    found = []
    for id_ in list(view.snapshot.job_allocations.get(job) or ())[:SENTENCES]:
        allocation = view.allocation(id_)
        choice = None if allocation is None else choice_of(view, scaling, allocation)
        if choice is not None:
            markets = " or ".join(sorted(market.value.replace("_", " ") for market in choice.markets))
            found.append(f"{id_} is for {markets}: {choice.reason}.")
    return tuple(found)


def choice_of(view: PoolView, pool: PoolScaling, allocation: Allocation) -> MarketChoice | None:
    """The choice of markets for an allocation and its reason; None if there is no choice."""
    if not pool.has_both_markets or allocation.ended or allocation.slots_needed == 0:
        return None
    gang = _gang_of(allocation)
    beliefs, machines, now = view.beliefs, view.machines or (), view.now
    among = choices(pool, beliefs).holding(gang)
    if allocation.assigned_at is None:
        waiting, to_be_had = _waiting(view, pool, allocation), ToBeHad(pool, machines, beliefs, now)
        choice = choice_of_start(pool, among, gang, waiting, to_be_had, now)
        return where_there_is_room(choice, among, gang, there(pool, machines))
    running = next((each for each in _running(view, pool) if each.gang.token == allocation.id), None)
    if running is None:
        return None
    return held_back(choice_of_running(pool, among, running, now), running, leave(pool.disruption, beliefs, now))


def _waiting(view: PoolView, pool: PoolScaling, allocation: Allocation) -> Waiting:
    work = work_of(view, pool, allocation, runs=False)
    return Waiting(token=allocation.id, since=allocation.requested_at, work=work)


def _running(view: PoolView, pool: PoolScaling) -> Iterator[Running]:
    """Gangs that have machines of this pool for themselves. A gang that shares one stays: others would have to move along."""
    market_of = {offer.offer_id: offer.market for offer in pool.offers}
    machines = view.machines or ()
    concerned = _concerned(view, pool)
    of_gang: dict[str, list[InstanceView]] = {}
    shared: set[str] = set()
    for machine in machines:
        for token in machine.occupants:
            if token in concerned:
                of_gang.setdefault(token, []).append(machine)
                if len(machine.occupants) > 1:
                    shared.add(token)
    for token, own in sorted(of_gang.items()):
        allocation = view.allocation(token)
        # Of an offer that has left the configuration the market is not known, and neither is what a move would gain.
        if token in shared or allocation is None or any(each.offer_id not in market_of for each in own):
            continue
        if allocation.slots_needed == 0 or allocation.assigned_at is None or not allocation.preemptible:
            continue
        on_spot = any(market_of[each.offer_id] is Market.SPOT for each in own)
        yield Running(
            gang=_gang_of(allocation),
            machines=tuple(sorted(each.instance_id for each in own)),
            market=Market.SPOT if on_spot else Market.ON_DEMAND,
            since=allocation.assigned_at,
            leaving=allocation.leaving,
            saved=allocation.saved_at is not None,
            work=work_of(view, pool, allocation, runs=True),
        )


def _gang_of(allocation: Allocation) -> Gang:
    return Gang(
        token=allocation.id,
        slots=allocation.slots_needed,
        submitted_at=allocation.requested_at,
        single_machine=allocation.single_node or allocation.slots_needed <= 1,
    )


class _Either(Container[str]):
    def __init__(self, *members: Container[object]) -> None:
        self._members = members

    def __contains__(self, token: object) -> bool:
        return any(token in each for each in self._members)


def _concerned(view: PoolView, pool: PoolScaling) -> Container[str]:
    """Running allocations whose market may change: those with a deadline or on a machine at risk; all of them in a pool that
    returns to spot."""
    machines = view.machines or ()
    if pool.spot_fallback.return_after_s is not None:
        return {token for machine in machines for token in machine.occupants}
    leaving = {token for machine in machines if machine.notice is not None for token in machine.occupants}
    return _Either(leaving, view.progress)


def work_of(view: PoolView, pool: PoolScaling, allocation: Allocation, *, runs: bool) -> Work | None:
    """The remaining work of an allocation: what was not done if it runs, otherwise what was not saved. None without a deadline."""
    if allocation.deadline is None:
        return None
    progress = view.progress.get(AllocationId(allocation.id))
    if progress is None:
        return None
    total_s, part = progress.total_s, progress.done if runs else progress.saved
    return Work(
        submitted_at=progress.submitted_at,
        deadline=allocation.deadline,
        remaining_s=None if total_s is None else total_s * (1 - part),
        total_s=total_s,
        restart_s=_join_time_s(view, pool) + START_S,
        unsaved_s=progress.unsaved_s if runs else 0.0,
        interruptions_per_hour=progress.interruptions_per_hour,
    )


def _join_time_s(view: PoolView, pool: PoolScaling) -> float:
    """Time until an on-demand machine joins: the longest known time of these offers."""
    known = [
        belief.join_time_s
        for offer in pool.offers
        if offer.market is Market.ON_DEMAND
        and (belief := view.beliefs.get(offer.offer_id)) is not None
        and belief.join_time_s is not None
    ]
    return max(known, default=DEFAULT_JOIN_TIME_S)
