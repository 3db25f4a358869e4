"""The effect of spending limits on a decision: what a pool may buy, which allocations may start, and the effect of
a lack of funds. Pure, from the accounts and prices of the view; `lifecycle.budget` defines when a limit is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from math import ceil

from resolute_master.decision.plan import Unaffordable
from resolute_master.decision.view import Budgets, PoolBudget, PoolView
from resolute_master.domain.account import NOTHING, Owner, Rate
from resolute_master.domain.copies import replace
from resolute_master.lifecycle import budget
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.plan import Placement
from resolute_provisioner.model import (
    Cause,
    InstanceView,
    Intent,
    Note,
    OfferBelief,
    PoolScaling,
    ScalePlan,
    Termination,
    Unpaid,
)
from resolute_provisioner.offers import priced

# ------------------------------------------------------------------------------------------------- what a pool may buy


class _Balance:
    """The amount that a pool may spend on more machines, beside those that it pays for or has requested."""

    def __init__(
        self, scaling: PoolScaling, spends: PoolBudget, beliefs: Mapping[str, OfferBelief], now: datetime
    ) -> None:
        account, beside = spends.account, spends.machines
        # The rate of the account is of what was booked, and more may have been bought since.
        current = replace(
            account.until(now), rate_per_hour=beside.per_hour, moving_rate_per_hour=beside.moving_per_hour
        )
        life_s = max(account.wind_down_s, budget.LEAST_LIFE_S)
        rates = {
            each.offer_id: rate_of(priced(each, beliefs.get(each.offer_id)).per_hour, moves=each.price_moves)
            for each in scaling.offers
        }
        self._pool = scaling.pool
        self._left = tuple(budget.left(current, life_s))
        self._costs = {offer_id: rate.most_per_hour * life_s / 3600.0 for offer_id, rate in rates.items()}
        """Cost of a machine of each offer for the shortest time in which it is useful."""
        self._most = scaling.max_instances

    def affordable(self, offers: Sequence[str]) -> tuple[int, budget.Reached | None]:
        """The number of these machines that can be paid for, in their order, and the limit that the next one would reach."""
        for count, cost in enumerate(accumulate(self._costs[each] for each in offers)):
            found = next((limit for limit, left in self._left if cost >= left), None)
            # What costs nothing reaches no limit.
            if found is not None and cost:
                return count, found
        return len(offers), None

    def unpaid(self, offer_id: str) -> Unpaid | None:
        """Why machines of an offer cannot be paid for; None if the budget suffices for as many as the pool may have."""
        cost = self._costs[offer_id]
        if not cost:
            return None
        beyond = [(ceil(min(max(left / cost, 1.0), self._most + 1.0)), limit) for limit, left in self._left]
        first, found = min(beyond, key=lambda each: each[0])
        if first > self._most:
            return None
        reason = budget.no_room(found, self._pool, first - 1)
        return Unpaid(offer_id=offer_id, machines=first - 1, reason=reason, until=found.until)


def payable(
    scaling: PoolScaling, spends: PoolBudget | None, beliefs: Mapping[str, OfferBelief], now: datetime
) -> PoolScaling:
    """The elastic part of a pool, limited by its budget."""
    if spends is None:
        return scaling
    balance = _Balance(scaling, spends, beliefs, now)
    unpaid = tuple(found for each in scaling.offers if (found := balance.unpaid(each.offer_id)) is not None)
    return replace(scaling, unpaid=unpaid)


def within(view: PoolView, scaling: PoolScaling, plan: ScalePlan) -> ScalePlan:
    """The plan without the machines that the pool could not pay for long enough to be useful, and with a note for each gang that
    does not get them. A gang gets all of its machines or none. `payable` checks each offer alone; this function checks them
    together."""
    if view.budgets.pool is None or not plan.launches:
        return plan
    balance = _Balance(scaling, view.budgets.pool, view.beliefs, view.now)
    kept, found = balance.affordable([launch.offer_id for launch in plan.launches])
    if found is None:
        return plan
    left_out = {gang for launch in plan.launches[kept:] for gang in launch.gang_tokens}
    reason = budget.no_room(found, scaling.pool, kept)
    return replace(
        plan,
        launches=tuple(each for each in plan.launches[:kept] if not left_out.intersection(each.gang_tokens)),
        notes=(*plan.notes, *(Note(subject=gang, text=reason) for gang in sorted(left_out))),
        revisit_at=min((at for at in (plan.revisit_at, found.until) if at is not None), default=None),
    )


# ------------------------------------------------------------------------------------------------------ what may start


def affordable(view: PoolView, outcome: Outcome) -> tuple[Outcome, tuple[Unaffordable, ...]]:
    """The outcome without the starts that would bring an account to its limit."""
    closed: set[str] = set()
    refused: list[Unaffordable] = []
    for placement in outcome.plan.place:
        found = _unaffordable(view, placement, closed)
        if found is not None:
            closed.add(found.account)
            refused.append(found)
    if not refused:
        return outcome, ()
    left_out = {each.allocation for each in refused}
    plan = replace(outcome.plan, place=tuple(each for each in outcome.plan.place if each.allocation not in left_out))
    results = {**outcome.results, **dict.fromkeys(left_out, PlacementResult.WAITING)}
    return replace(outcome, plan=plan, results=results), tuple(refused)


def _unaffordable(view: PoolView, placement: Placement, closed: set[str]) -> Unaffordable | None:
    """The reason why a placement cannot be paid; None if it can. `closed`: the accounts that this decision has found at their
    limits."""
    payers = view.budgets.payers.get(placement.allocation, ()) if placement.slots else ()
    if not payers:
        return None
    more, unpriced = _cost(view.budgets, placement)
    for account in payers if more != NOTHING or unpriced else ():
        unknown = unpriced if account.owner is Owner.EXPERIMENT else ""
        found = budget.reached(account, view.now, more=more)
        if unknown or found is not None or account.id in closed or account.wind_down is not None:
            return Unaffordable(
                allocation=placement.allocation, account=account.id, more=more, reached=found, unpriced=unknown
            )
    return None


def _cost(budgets: Budgets, placement: Placement) -> tuple[Rate, str]:
    """The cost of the slots per hour, `NOTHING` if the price of an agent is unknown, and the agents with unknown prices."""
    total, moving = 0.0, False
    unpriced = []
    for agent in sorted(placement.agents):
        price, count = budgets.prices.get(agent), sum(slot.agent == agent for slot in placement.slots)
        if price is None:
            continue
        moving = moving or price.moves
        if price.per_hour is None:
            unpriced.append(agent)
        else:
            total += price.per_hour * count
    return (NOTHING if unpriced else rate_of(total, moves=moving)), ", ".join(unpriced)


def rate_of(price_per_hour: float | None, *, moves: bool) -> Rate:
    """The rate of a price; `NOTHING` itself for a price of 0."""
    if not price_per_hour:
        return NOTHING
    return Rate(per_hour=price_per_hour, moving_per_hour=price_per_hour if moves else 0.0)


# ------------------------------------------------------------------------------------------- a pool that may spend nothing


def buying_nothing(scaling: PoolScaling) -> PoolScaling:
    """The elastic part of a pool that has reached a limit: it buys no machine and releases an idle one at once."""
    return replace(scaling, offers=(), min_instances=0, idle_timeout_s=0.0)


def starting_nothing(plan: ScalePlan, machines: Iterable[InstanceView]) -> ScalePlan:
    """The plan of a pool that has reached a limit. It also ends machines that have not joined, because no task may start on
    them."""
    named = {each.instance_id for each in plan.terminations}
    ends = [
        Termination(
            instance_id=each.instance_id,
            cause=Cause.UNWANTED,
            reason="it has not joined yet, and the pool may not spend now",
        )
        for each in machines
        if each.joined_at is None and each.intent is Intent.RUN and not each.observed.final
        if each.instance_id not in named
    ]
    return replace(plan, terminations=tuple(sorted([*plan.terminations, *ends], key=lambda each: each.instance_id)))
