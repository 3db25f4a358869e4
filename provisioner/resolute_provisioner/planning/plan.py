"""Which machines to add or remove. Pure: all inputs are arguments.

The steps: the use of each machine (`standing`), machines that must be released in any case (`ending`), the placement of pending
gangs on the rest and the machines to buy (`packing`), offers of which one machine is requested first (`probing`), further machines
that are unneeded or have idled long enough (`ending`), and, while nothing is pending, moves of work to fewer or cheaper machines
(`consolidation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta

from resolute_provisioner import risk
from resolute_provisioner.model import (
    Demand,
    Gang,
    InstanceView,
    Launch,
    Note,
    OfferBelief,
    PoolScaling,
    ScalePlan,
    Termination,
)
from resolute_provisioner.planning import disruption, keep_warm, notes, probing, soon_free
from resolute_provisioner.planning.consolidation import Move, consolidate
from resolute_provisioner.planning.ending import (
    held_until,
    idle_ones,
    must_go,
    of_no_use,
    over_maximum,
    room_is_coming,
)
from resolute_provisioner.planning.gangs import in_order, machines_of
from resolute_provisioner.planning.markets import REPLACEMENT_PREFIX
from resolute_provisioner.planning.offers_by_size import Machine
from resolute_provisioner.planning.packing import Packing, pack
from resolute_provisioner.planning.probing import one_at_a_time
from resolute_provisioner.planning.standing import (
    MASS_LOSS_GRACE_S,
    NOTICE_GRACE_S,
    Fleet,
    Standing,
    by_id,
    judge,
)
from resolute_provisioner.ranking import forecasts


def plan_scale(
    pool: PoolScaling,
    instances: Sequence[InstanceView],
    demand: Demand,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> ScalePlan:
    """The changes that bring the pool's machines in line with its waiting work.

        Deterministic, and independent of the order of `instances` and of `demand.gangs`. `beliefs` is keyed by offer id; an
        offer without one is taken as untried.

        Guarantees: gangs get all of their machines or none, except that a refused offer first gets a request for one of them;
    nothing is launched for work that present or starting machines will take; running machines never exceed `max_instances`
        by more than those under notice, whose replacements start before they are gone; machines are released down to
        `min_instances` and no further, except those that are broken, going away, or in the place of one that waiting work needs (at
        the maximum, that one is asked for when the place is free); a machine that waiting work will use (a gang of `demand` in its
        room and that of machines which are ending, or what `demand.kept` represents) is not released for idling.
    """
    fleet = judge(pool, instances, now)
    terminations = [*must_go(pool, fleet.others, now), *over_maximum(pool, fleet.others)]
    going = {each.instance_id for each in terminations}
    keep = (each.view for each in fleet.others if each.staying and each.view.instance_id not in going)
    # Full machines stay as well and only count.
    staying, full = sorted([*fleet.open, *keep], key=by_id), len(fleet.full)

    market = _Market(pool, instances, beliefs, now)
    room = max(0, pool.max_instances - fleet.counted)
    gangs = [*_displaced(fleet.others, demand), *in_order(demand.gangs)]
    packing, patient_until = _packed(pool, fleet, going, gangs, market, room, now)
    room -= len(packing.bought)
    launches, asking = one_at_a_time(_launches(packing), beliefs, market.asked)

    unused = [each for each in staying if not (each.occupied or each.instance_id in packing.on_machines)]
    returned = of_no_use(pool, unused, gangs, packing.unserved, market.all_blocks, market.idle_periods, now)
    returned = returned[: max(0, full + len(staying) - pool.min_instances)]
    # The minimum is there to be warm: a machine that only starts does not let an idle one go.
    warm = full + sum(each.joined_at is not None for each in _without(staying, returned))
    spare = [each for each in _without(unused, returned) if each.idle and each.instance_id not in demand.kept]
    soon = _room_soon(pool, fleet, [*terminations, *returned], packing)
    returned += idle_ones(
        pool, spare, warm, packing.unserved, soon, market.all_blocks, market.prices, market.idle_periods, now
    )
    # What waits for room that is being made will be the minimum itself: a machine bought for that alone would take the room.
    soon = _room_soon(pool, fleet, [*terminations, *returned], packing)
    free = 0 if room_is_coming(packing.unserved, room, soon) else room
    floor, floor_notes = _floor(pool, full + len(staying) - len(returned) + len(packing.bought), free, market)
    floor, _ = one_at_a_time(floor, beliefs, {*market.asked, *(each.offer_id for each in launches)})
    waiting = demand.kept or _may_be_served(pool, fleet, gangs)
    move = Move() if waiting else _move(pool, fleet, _without(staying, returned), market, room - len(floor), now)
    about_work = _for_work(pool, fleet, packing, market, room, now)
    wanting = bool(packing.unserved or floor_notes or asking)
    return ScalePlan(
        launches=(*launches, *floor, *move.launches),
        terminations=tuple(sorted([*terminations, *returned, *move.drains], key=by_id)),
        revisit_at=_revisit_at(pool, fleet, market, (move.revisit_at, patient_until), wanting, now),
        notes=(*notes.for_pool(pool, fleet.others, market.blocks), *floor_notes, *asking, *about_work),
    )


def _for_work(
    pool: PoolScaling, fleet: Fleet, packing: Packing, market: _Market, room: int, now: datetime
) -> list[Note]:
    names = packing.on_machines
    filled = {view.instance_id: view for view in fleet.views() if view.instance_id in names} if names else {}
    return [
        *notes.for_waiting(packing, filled, now),
        *notes.for_unserved(pool, packing.unserved, market.all_blocks, pool.max_instances - room),
    ]


def _may_be_served(pool: PoolScaling, fleet: Fleet, gangs: Sequence[Gang]) -> bool:
    """Whether some gang can be served by the pool's machines, or by any that it may launch, if it has no other work."""
    there = {view.slots for view in fleet.views()} if gangs else set()
    return any(_fits(pool, there, gang) for gang in gangs)


def _fits(pool: PoolScaling, there: Set[int], gang: Gang) -> bool:
    """Whether a gang fits. `there`: the sizes of the pool's machines."""
    if gang.slots == 0:
        return pool.max_aux_per_instance > 0
    sizes = there | {offer.slots for offer in pool.offers if offer.market in gang.markets}
    counts = (machines_of(gang, size) for size in sizes)
    return any(count is not None and count <= max(1, pool.max_instances) for count in counts)


class _Market:
    """The offers that may be requested now, and the obstacles of the others."""

    def __init__(
        self, pool: PoolScaling, instances: Sequence[InstanceView], beliefs: Mapping[str, OfferBelief], now: datetime
    ) -> None:
        self.leave = disruption.leave(pool.disruption, beliefs, now)
        """Leave to preempt running work."""
        self.asked = probing.asked(instances, beliefs)
        """The offers whose one request has no answer yet."""
        self.blocks = probing.blocks(pool, self.asked, beliefs, now)
        self.gang_blocks = risk.gang_blocks(pool, beliefs, now, machines=pool.max_instances)
        """Blocks of offers from which one machine may be requested, but not as many as a gang may need."""
        self.all_blocks = {**self.gang_blocks, **self.blocks}
        self.gang_limits = risk.gang_limits(pool, beliefs, now)
        offers = forecasts(pool, beliefs, now)
        self.usable = [each for each in offers if each.offer.offer_id not in self.blocks]
        """Offers that may be requested, the best first."""
        self.prices = {each.offer.offer_id: each.price_per_hour for each in offers}
        """Prices in force, by offer id."""
        self.idle_periods = keep_warm.IdlePeriods(pool, beliefs)

    def moments(self) -> list[datetime]:
        """Times at which pending work may find machines that are not available now."""
        until = [each.until for found in (self.blocks, self.gang_blocks) for each in found.values()]
        return [
            *(each for each in until if each is not None),
            *(at + timedelta(seconds=probing.ANSWER_TIMEOUT_S) for at in self.asked.values()),
        ]


def _without(machines: Sequence[InstanceView], returned: Sequence[Termination]) -> list[InstanceView]:
    names = {each.instance_id for each in returned}
    return [each for each in machines if each.instance_id not in names]


def _displaced(standings: Sequence[Standing], demand: Demand) -> list[Gang]:
    """Gangs on machines under notice, which will need as much elsewhere. Their machines are replaced before they are pending, and
    held for them while the machine under notice ends."""
    waiting = {gang.token for gang in demand.gangs}
    return [
        Gang(
            token=REPLACEMENT_PREFIX + each.view.instance_id,
            slots=each.view.slots_in_use,
            submitted_at=each.view.requested_at,
            single_machine=True,
            markets=each.view.successor_markets,
        )
        for each in standings
        if each.view.notice is not None and each.view.occupied
        if not waiting.intersection(each.view.occupants)
    ]


def _move(
    pool: PoolScaling, fleet: Fleet, staying: Sequence[InstanceView], market: _Market, room: int, now: datetime
) -> Move:
    """One move at a time, because a move may need the free slots. `staying` leaves out the full machines."""
    draining = any(each.view.draining_since is not None for each in fleet.others)
    if draining or len(fleet.full) + len(staying) <= pool.min_instances:
        return Move()
    found = consolidate(pool, staying, market.usable, room, now)
    if not (found.drains or found.launches) or market.leave.given:
        return found
    return Move(revisit_at=market.leave.revisit_at)


def _packed(
    pool: PoolScaling,
    fleet: Fleet,
    going: Set[str],
    gangs: list[Gang],
    market: _Market,
    room: int,
    now: datetime,
) -> tuple[Packing, datetime | None]:
    """The packing, and until when some gang waits for slots that other work will free."""
    if not gangs:
        return Packing(on_machines={}, bought=(), unserved=()), None  # nothing waits at most times
    best = market.usable[0] if market.usable else None
    boot_s = best.join_time_s if best is not None else 0.0
    # Where machines run for hours, an unnecessary machine costs less than the wait.
    waits = best is not None and pool.idle_learnt and not market.idle_periods.boots_are_cheap(best.offer.slots)
    capable = (each.view for each in fleet.others if each.capacity and each.view.instance_id not in going)
    open_ = [*fleet.open, *capable]
    soon = soon_free.soon_free(pool, [*fleet.full, *open_], boot_s, now) if waits else []
    gangs, patient_until = soon_free.counting_on(gangs, soon, boot_s, now)
    # A full machine may take what needs no slot.
    filled = [*fleet.full, *open_] if any(gang.slots == 0 for gang in gangs) else open_
    packing = pack(
        [*_machines(pool, filled), *soon],
        gangs,
        market.usable,
        room=room,
        max_aux=pool.max_aux_per_instance,
        gang_limits=market.gang_limits,
    )
    return packing, patient_until


def _machines(pool: PoolScaling, views: Sequence[InstanceView]) -> list[Machine]:
    market = {offer.offer_id: offer.market for offer in pool.offers}
    return [
        Machine(
            name=view.instance_id,
            size=view.slots,
            free_slots=view.free_slots,
            free_aux=max(0, pool.max_aux_per_instance - view.aux_in_use),
            untouched=view.slots_in_use == view.closed_slots_in_use,
            preference=0 if view.joined_at is not None else 1,
            reserved_for=view.reserved_for,
            market=market.get(view.offer_id),
        )
        for view in views
    ]


def _launches(packing: Packing) -> list[Launch]:
    return [
        Launch(offer_id=forecast.offer.offer_id, gang_tokens=tokens, reason=notes.why_launch(forecast, tokens))
        for forecast, tokens in packing.bought
    ]


def _room_soon(pool: PoolScaling, fleet: Fleet, ending: Sequence[Termination], packing: Packing) -> int:
    """The number of further machines that are possible when the ending ones have ended."""
    gone = {each.instance_id for each in ending}
    # One under notice takes no room now, so its end makes none.
    lasting = sum(each.counts and not (each.stopping or each.view.instance_id in gone) for each in fleet.others)
    lasting += len(fleet.full) + len(fleet.open) - sum(each.instance_id in gone for each in fleet.open)
    return max(0, pool.max_instances - lasting - len(packing.bought))


def _floor(pool: PoolScaling, count: int, room: int, market: _Market) -> tuple[list[Launch], list[Note]]:
    """Launches without work, up to the minimum."""
    missing = min(pool.min_instances - count, room)
    if missing <= 0:
        return [], []
    if not market.usable:
        text = f"the pool is {missing} below its minimum: {notes.why_blocked(market.blocks)}"
        return [], [Note(subject="", text=text)]
    reason = f"the pool keeps at least {pool.min_instances} machines"
    return [Launch(offer_id=market.usable[0].offer.offer_id, gang_tokens=(), reason=reason)] * missing, []


def _revisit_at(
    pool: PoolScaling,
    fleet: Fleet,
    market: _Market,
    others: Sequence[datetime | None],
    wanting: bool,
    now: datetime,
) -> datetime | None:
    """The next time at which the passing of time alone may change this plan."""
    times = [_released_at(each, each.idle_since, market) for each in fleet.open if each.idle_since is not None]
    times.extend(moment for each in fleet.others for moment in _moments(pool, each, market))
    times.extend(at for at in others if at is not None)
    if wanting:
        times.extend(market.moments())
        times.extend(held_until(pool, each) for each in fleet.views() if each.reserved_for and not each.occupied)
    return min((each for each in times if each > now), default=None)


def _released_at(view: InstanceView, idle_since: datetime, market: _Market) -> datetime:
    return idle_since + timedelta(seconds=market.idle_periods.of(view.offer_id, market.prices.get(view.offer_id)))


def _moments(pool: PoolScaling, each: Standing, market: _Market) -> list[datetime]:
    view = each.view
    if each.stopping:
        return []
    idle_until = [] if view.idle_since is None else [_released_at(view, view.idle_since, market)]
    booting_since = (view.launched_at or view.requested_at) if view.joined_at is None else None
    limits: list[tuple[datetime | None, float]] = [
        (booting_since, pool.boot_timeout_s),
        (view.disconnected_since, pool.reconnect_wait_s),
        (view.disconnected_since, pool.disconnect_timeout_s),
        (view.disconnected_since, pool.disconnect_timeout_s + MASS_LOSS_GRACE_S),
        (view.draining_since, pool.drain_timeout_s),
        (view.notice.deadline if view.notice else None, NOTICE_GRACE_S),
    ]
    return idle_until + [start + timedelta(seconds=limit_s) for start, limit_s in limits if start is not None]
