"""Which machines to add or remove. Pure: everything it may look at is an argument.

The order of thought: what is each machine good for (`standing`), which must go whatever the work is, what do the
waiting gangs take of the rest (`packing`), which of the others have idled long enough, and what has to be bought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from resolute_provisioner import notes
from resolute_provisioner.gangs import in_order
from resolute_provisioner.model import (
    Cause,
    Demand,
    Gang,
    InstanceView,
    Launch,
    Note,
    Offer,
    OfferBelief,
    PoolScaling,
    ScalePlan,
    Termination,
)
from resolute_provisioner.packing import Packing, Unserved, pack
from resolute_provisioner.ranking import Outlook, outlooks
from resolute_provisioner.risk import Block
from resolute_provisioner.risk import blocks as blocks_of
from resolute_provisioner.shelves import Machine
from resolute_provisioner.standing import MASS_LOSS_PATIENCE_S, NOTICE_GRACE_S, Standing, judge, seconds_between

REPLACEMENT_PREFIX = "replacement-of-"
"""A machine under notice that still works stands in the demand under this name, until its work waits itself."""


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

    Promises: gangs get all of their machines or none; nothing is launched for work that machines which are there or
    coming will take; living machines never exceed `max_instances` by more than those under notice, whose replacements
    start before they are gone; machines are given back down to `min_instances` and no further, except those that are
    broken, going away, or in the place of one that waiting work needs; a machine that a waiting gang will use is not
    given back for idling.
    """
    alive = sorted((each for each in instances if not each.observed.final), key=lambda each: each.instance_id)
    standings = judge(pool, alive, now)
    terminations = [*_must_go(pool, standings, now), *_over_maximum(pool, standings)]
    going = {each.instance_id for each in terminations}
    staying = [each for each in standings if each.staying and each.view.instance_id not in going]

    blocks = blocks_of(pool.offers, beliefs, now)
    usable = [each for each in outlooks(pool, beliefs, now) if each.offer.offer_id not in blocks]
    room = max(0, pool.max_instances - sum(each.counts for each in standings))
    gangs = [*_displaced(standings, demand), *in_order(demand.gangs)]
    offers = {offer.offer_id: offer for offer in pool.offers}
    machines = [_machine(pool, each, offers.get(each.view.offer_id)) for each in staying if each.capacity]
    packing = pack(machines, gangs, usable, room=room, max_aux=pool.max_aux_per_instance)

    spare = [each for each in staying if each.idle and each.view.instance_id not in packing.on_machines]
    # The minimum is there to be warm: a machine that only starts does not let an idle one go.
    warm = sum(each.view.joined_at is not None for each in staying)
    returned = _idle_ones(pool, spare, warm, packing.unserved, room - len(packing.bought), now)
    remaining = len(staying) - len(returned)
    launches = _launches(packing)
    gone = going.union(each.instance_id for each in returned)
    # One under notice takes no room now, so its end makes none.
    ending = sum(each.counts and (each.stopping or each.view.instance_id in gone) for each in standings)
    # What waits for room that is being made will be the minimum itself: a machine bought for that alone would take the room.
    free = 0 if _room_is_coming(packing.unserved, room - len(launches), ending) else room - len(launches)
    floor, floor_notes = _floor(pool, remaining + len(launches), free, usable, blocks)
    return ScalePlan(
        launches=(*launches, *floor),
        terminations=tuple(sorted([*terminations, *returned], key=lambda each: each.instance_id)),
        revisit_at=_revisit_at(pool, standings, blocks, bool(packing.unserved or floor_notes), now),
        notes=(
            *notes.for_pool(pool, standings, blocks),
            *floor_notes,
            *notes.for_waiting(packing, {each.view.instance_id: each.view for each in staying}, now),
            *notes.for_unserved(pool, packing.unserved, blocks, pool.max_instances - room + len(packing.bought)),
        ),
    )


def _must_go(pool: PoolScaling, standings: Sequence[Standing], now: datetime) -> list[Termination]:
    """Machines that are broken, going away by themselves, or drained."""
    terminations: list[Termination] = []
    for each in standings:
        view = each.view
        if each.stopping:
            continue
        if each.never_joined:
            waited = seconds_between(view.launched_at or view.requested_at, now)
            reason = f"its agent did not connect within {waited:.0f} s of the launch"
            terminations.append(Termination(instance_id=view.instance_id, cause=Cause.NEVER_JOINED, reason=reason))
        elif each.lost:
            away = seconds_between(view.disconnected_since or now, now)
            reason = f"its agent has been out of contact for {away:.0f} s"
            terminations.append(Termination(instance_id=view.instance_id, cause=Cause.LOST, reason=reason))
        elif view.notice is not None:
            deadline = view.notice.deadline
            overdue = deadline is not None and now >= deadline + timedelta(seconds=NOTICE_GRACE_S)
            if overdue or not view.occupied:
                state = "the deadline has passed" if overdue else "nothing runs on it"
                reason = f"it announced its end ({view.notice.kind.value}) and {state}"
                terminations.append(Termination(instance_id=view.instance_id, cause=Cause.NOTICE, reason=reason))
        elif view.draining_since is not None:
            drained_for = seconds_between(view.draining_since, now)
            if not view.occupied or drained_for >= pool.drain_timeout_s:
                state = "its work has moved away" if not view.occupied else f"draining took {drained_for:.0f} s"
                terminations.append(Termination(instance_id=view.instance_id, cause=Cause.DRAINED, reason=state))
    return terminations


def _over_maximum(pool: PoolScaling, standings: Sequence[Standing]) -> list[Termination]:
    """The limit was lowered: machines without work go first, then those with the least, newest first."""
    staying = [each for each in standings if each.staying]
    excess = len(staying) - pool.max_instances
    if excess <= 0:
        return []
    # Two stable sorts, because ids cannot be negated: newest first within what is otherwise equal.
    newest_first = sorted(staying, key=lambda each: (each.view.requested_at, each.view.instance_id), reverse=True)
    least_loss = sorted(
        newest_first,
        key=lambda each: (each.view.occupied, each.view.joined_at is not None, each.view.slots_in_use),
    )
    return [
        Termination(
            instance_id=each.view.instance_id,
            cause=Cause.OVER_MAXIMUM,
            reason=f"the pool has {len(staying)} machines and may have {pool.max_instances}",
            drain=each.view.occupied,
        )
        for each in least_loss[:excess]
    ]


def _displaced(standings: Sequence[Standing], demand: Demand) -> list[Gang]:
    """What runs on machines under notice will need as much elsewhere: its machine is replaced before it waits."""
    waiting = {gang.token for gang in demand.gangs}
    return [
        Gang(
            token=REPLACEMENT_PREFIX + each.view.instance_id,
            slots=each.view.slots_in_use,
            submitted_at=each.view.requested_at,
            single_machine=True,
        )
        for each in standings
        if each.view.notice is not None and each.view.occupied and not each.stopping
        if not waiting.intersection(each.view.occupants)
    ]


def _machine(pool: PoolScaling, each: Standing, offer: Offer | None) -> Machine:
    view = each.view
    return Machine(
        name=view.instance_id,
        size=view.slots,
        free_slots=max(0, view.slots - view.slots_in_use),
        free_aux=max(0, pool.max_aux_per_instance - view.aux_in_use),
        untouched=view.slots_in_use == 0,
        preference=0 if view.joined_at is not None else 1,
        reserved_for=view.reserved_for,
        market=None if offer is None else offer.market,
    )


def _idle_ones(
    pool: PoolScaling,
    spare: Sequence[Standing],
    warm: int,
    unserved: Sequence[Unserved],
    room: int,
    now: datetime,
) -> list[Termination]:
    """Idle machines that no waiting gang will use: the dearest and longest idle first, down to the minimum unless they
    stand in the way of work."""
    prices = {offer.offer_id: offer.price_per_hour or 0.0 for offer in pool.offers}
    make_room, kept = _room_to_make(spare, unserved, room)
    ordered = sorted(
        spare,
        key=lambda each: (-prices.get(each.view.offer_id, 0.0), each.view.idle_since or now, each.view.instance_id),
    )
    terminations: list[Termination] = []
    for each in ordered:
        idle_s = seconds_between(each.view.idle_since or now, now)
        # One that makes room is replaced at once, so that the minimum does not protect it.
        if idle_s >= pool.idle_timeout_s and warm - len(terminations) > pool.min_instances:
            cause, reason = Cause.IDLE, f"nothing has run on it for {idle_s:.0f} s and no waiting work fits on it"
        elif make_room > 0 and each.view.instance_id not in kept:
            cause, reason = Cause.MAKE_ROOM, "waiting work does not fit on it and the pool has no room for another"
        else:
            continue
        make_room -= 1
        terminations.append(Termination(instance_id=each.view.instance_id, cause=cause, reason=reason))
    return terminations


def _room_to_make(spare: Sequence[Standing], unserved: Sequence[Unserved], room: int) -> tuple[int, frozenset[str]]:
    """How many idle machines stand in the way of the most important gang that would start without them, and which of
    them it would use itself."""
    names = {each.view.instance_id for each in spare}
    for way in (way for each in unserved for way in each.ways):
        missing = way.machines_missing - room
        if 0 < missing <= len(names.difference(way.would_use)):
            return missing, frozenset(way.would_use)
    return 0, frozenset()


def _room_is_coming(unserved: Sequence[Unserved], room: int, ending: int) -> bool:
    """Whether some waiting gang will have its machines bought as soon as `ending` machines are gone."""
    return any(room < way.machines_missing <= room + ending for each in unserved for way in each.ways)


def _launches(packing: Packing) -> list[Launch]:
    return [
        Launch(offer_id=outlook.offer.offer_id, gang_tokens=tokens, reason=notes.why_launch(outlook, tokens))
        for outlook, tokens in packing.bought
    ]


def _floor(
    pool: PoolScaling, count: int, room: int, usable: Sequence[Outlook], blocks: Mapping[str, Block]
) -> tuple[list[Launch], list[Note]]:
    """Machines without work, up to the minimum."""
    missing = min(pool.min_instances - count, room)
    if missing <= 0:
        return [], []
    if not usable:
        return [], [Note(subject="", text=f"the pool is {missing} below its minimum: {notes.why_blocked(blocks)}")]
    cheapest = usable[0].offer
    reason = f"the pool keeps at least {pool.min_instances} machines"
    return [Launch(offer_id=cheapest.offer_id, gang_tokens=(), reason=reason)] * missing, []


def _revisit_at(
    pool: PoolScaling, standings: Sequence[Standing], blocks: Mapping[str, Block], wanting: bool, now: datetime
) -> datetime | None:
    """The next time at which the passing of time alone may change this plan."""
    times = [moment for each in standings for moment in _moments(pool, each)]
    if wanting:
        times.extend(each.until for each in blocks.values() if each.until is not None)
    return min((each for each in times if each > now), default=None)


def _moments(pool: PoolScaling, each: Standing) -> list[datetime]:
    view = each.view
    if each.stopping:
        return []
    booting_since = (view.launched_at or view.requested_at) if view.joined_at is None else None
    limits: list[tuple[datetime | None, float]] = [
        (booting_since, pool.boot_timeout_s),
        (view.idle_since, pool.idle_timeout_s),
        (view.disconnected_since, pool.reconnect_wait_s),
        (view.disconnected_since, pool.disconnect_timeout_s),
        (view.disconnected_since, pool.disconnect_timeout_s + MASS_LOSS_PATIENCE_S),
        (view.draining_since, pool.drain_timeout_s),
        (view.notice.deadline if view.notice else None, NOTICE_GRACE_S),
    ]
    return [start + timedelta(seconds=limit_s) for start, limit_s in limits if start is not None]
