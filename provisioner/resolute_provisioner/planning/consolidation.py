"""Moving work so that a machine may end, or a smaller one replaces it. Pure.

Work that ends leaves machines half empty. The rest of one may fit on the free slots of others, or on a cheaper machine; then the
machine is drained: its work saves, ends, and resumes there. That pays when

    saving per hour x expected remaining time  >=  margin x cost of the move

Run times are heavy-tailed: work that has run for an hour is expected to run for another. The saving lasts until the longest of the
machine's work would have ended; the cost is a restart of all of it, and the boot of another machine if one is needed.

One machine at a time is drained, and none while work is pending, which has priority for free slots. And one machine at a time is
launched for a move, on any market: whether a second one pays is decided when the first has joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute_provisioner.model import Cause, Consolidation, InstanceView, Launch, PoolScaling, Resident, Termination
from resolute_provisioner.ranking import Forecast

LONGEST_S = 86_400.0
"""Longest expected remaining time of work, however long it has run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The result: at most one machine to drain, or one to launch in its place; and the time of the next check."""

    drains: tuple[Termination, ...] = ()
    launches: tuple[Launch, ...] = ()
    revisit_at: datetime | None = None


def consolidate(
    pool: PoolScaling, staying: Sequence[InstanceView], offers: Sequence[Forecast], room: int, now: datetime
) -> Move:
    """The best move among the machines that stay. `offers` may be requested now, the best first; `room` machines more may
    be had. To be asked only while nothing waits and no machine is being drained."""
    policy = pool.consolidation
    if policy is None:
        return Move()
    prices = {each.offer.offer_id: each.price_per_hour for each in offers}
    markets = {offer.offer_id: offer.market for offer in pool.offers}
    room = 0 if any(map(_has_no_gang, staying)) else room
    ripe: list[tuple[datetime, float, str, Move]] = []
    for each in staying:
        price = prices.get(each.offer_id) if _may_move(each) else None
        if price is None:
            continue
        market = markets.get(each.offer_id)
        onto = [o for o in staying if o is not each and markets.get(o.offer_id) is market]
        found = _onto_others(each, onto, prices, price) or _onto_smaller(each, offers, onto, prices, price, room)
        if found is not None:
            pays_at = _pays_at(each, found, policy, price)
            ripe.append((pays_at, -found.saving, each.instance_id, found.move(each)))
    if not ripe:
        return Move()
    due = [entry for entry in ripe if entry[0] <= now]
    if due:
        return min(due, key=lambda entry: entry[1:3])[3]
    return Move(revisit_at=min(entry[0] for entry in ripe))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to empty one machine. `launch` None: no further machine is needed."""

    saving: float
    """Saving per hour."""
    boot_s: float = 0.0
    launch: Forecast | None = None
    coming: bool = False
    """Whether the machine that it needs is starting already."""

    def move(self, each: InstanceView) -> Move:
        if self.coming:
            return Move()
        if self.launch is not None:
            offer = self.launch.offer
            reason = f"a cheaper machine for what runs on {each.instance_id}, which saves {self.saving:.2f} an hour"
            return Move(launches=(Launch(offer_id=offer.offer_id, gang_tokens=(), reason=reason),))
        reason = f"what runs on it fits on other machines, which saves {self.saving:.2f} an hour"
        ended = Termination(instance_id=each.instance_id, cause=Cause.CONSOLIDATION, reason=reason, drain=True)
        return Move(drains=(ended,))


def _has_no_gang(view: InstanceView) -> bool:
    return view.joined_at is None and not view.reserved_for


def _may_move(view: InstanceView) -> bool:
    """Whether the machine has free slots, and all its work can be moved."""
    if not view.residents or view.aux_in_use or not view.agent_connected or view.disabled:
        return False
    moved = sum(resident.slots for resident in view.residents)
    return moved == view.slots_in_use < view.slots and all(resident.movable for resident in view.residents)


def _onto_others(
    each: InstanceView, others: Sequence[InstanceView], prices: Mapping[str, float | None], price: float
) -> _Way | None:
    """A way onto free slots of machines in use, or onto cheaper idle machines."""
    free: dict[str, int] = {}
    for view in others:
        theirs = prices.get(view.offer_id)
        cheaper = theirs is not None and theirs < price
        if view.joined_at is not None and view.agent_connected and not view.disabled and (view.occupied or cheaper):
            free[view.instance_id] = view.free_slots
    idle = {view.instance_id: prices.get(view.offer_id) or 0.0 for view in others if not view.occupied}
    used = _fitted(each.residents, free)
    if used is None:
        return None
    # In an order of its own: the sum of the same prices in another order differs in the last digit.
    saving = price - sum(idle.get(name, 0.0) for name in sorted(used))
    return _Way(saving=saving) if saving > 0 else None


def _onto_smaller(
    each: InstanceView,
    offers: Sequence[Forecast],
    others: Sequence[InstanceView],
    prices: Mapping[str, float | None],
    price: float,
    room: int,
) -> _Way | None:
    """A way onto a cheaper machine for all of it; a starting machine without a hold is waited for."""
    slots = each.slots_in_use
    for other in others:
        theirs = prices.get(other.offer_id)
        comes = _has_no_gang(other) and other.slots >= slots
        if comes and theirs is not None and theirs < price:
            return _Way(saving=price - theirs, coming=True)
    fitting = [
        o for o in offers if o.offer.slots >= slots and o.price_per_hour is not None and o.price_per_hour < price
    ]
    here = next((o.offer.market for o in offers if o.offer.offer_id == each.offer_id), None)
    fitting = [o for o in fitting if o.offer.market is here]
    if not fitting or room <= 0:
        return None
    best = min(fitting, key=lambda forecast: (forecast.expected_price or 0.0, forecast.offer.offer_id))
    return _Way(saving=price - (best.price_per_hour or 0.0), boot_s=best.join_time_s, launch=best)


def _fitted(residents: Sequence[Resident], free: Mapping[str, int]) -> set[str] | None:
    """Machines that take all of these gangs: the largest first, each on the tightest machine; None if one does not fit."""
    left = dict(free)
    used: set[str] = set()
    for resident in sorted(residents, key=lambda resident: (-resident.slots, resident.token)):
        fitting = [name for name, slots in left.items() if slots >= resident.slots]
        if not fitting:
            return None
        tightest = min(fitting, key=lambda name: (left[name], name))
        left[tightest] -= resident.slots
        used.add(tightest)
    return used


def _pays_at(view: InstanceView, way: _Way, policy: Consolidation, price: float) -> datetime:
    """Time at which the oldest work there will have run long enough that the move is expected to pay."""
    restart = price / view.slots * view.slots_in_use * policy.restart_s / 3600.0
    boot = 0.0 if way.launch is None else (way.launch.price_per_hour or 0.0) * way.boot_s / 3600.0
    needed_s = policy.margin * (restart + boot) / way.saving * 3600.0
    oldest = min(resident.since for resident in view.residents)
    newest = max(resident.since for resident in view.residents)
    if needed_s > LONGEST_S:
        return datetime.max.replace(tzinfo=oldest.tzinfo)
    # What has only just been placed is left alone for as long as a move takes, or it would be moved again and again.
    return max(oldest + timedelta(seconds=needed_s), newest + timedelta(seconds=policy.margin * policy.restart_s))
