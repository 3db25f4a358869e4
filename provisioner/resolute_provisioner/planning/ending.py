"""Which machines are released. Pure.

Machines that are broken, under notice or drained are released in any case; machines over the maximum after their work has moved;
of the others those that were launched for a gang which cannot be completed, those that no work waits for any more, and those
that have idled long enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta

from resolute_provisioner.model import Cause, Gang, InstanceView, Observed, PoolScaling, Termination
from resolute_provisioner.planning.gangs import machines_of, needs_whole_machines, shape_of
from resolute_provisioner.planning.keep_warm import IdlePeriods
from resolute_provisioner.planning.markets import MOVE_PREFIX, REPLACEMENT_PREFIX
from resolute_provisioner.planning.packing import Unserved
from resolute_provisioner.planning.standing import NOTICE_GRACE_S, Standing, seconds_between
from resolute_provisioner.risk import Block

_NEVER = datetime.max.replace(tzinfo=UTC)

_STAND_INS = (REPLACEMENT_PREFIX, MOVE_PREFIX)
"""Prefixes of tokens that represent work. Between the end of the work and its return to the queue, neither may be in the demand."""


def must_go(pool: PoolScaling, standings: Sequence[Standing], now: datetime) -> list[Termination]:
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
                state = "the deadline has passed" if overdue else "it is idle"
                reason = f"it announced its end ({view.notice.kind.value}) and {state}"
                terminations.append(Termination(instance_id=view.instance_id, cause=Cause.NOTICE, reason=reason))
        elif view.draining_since is not None:
            drained_for = seconds_between(view.draining_since, now)
            if not view.occupied or drained_for >= pool.drain_timeout_s:
                state = "its work has moved away" if not view.occupied else f"draining took {drained_for:.0f} s"
                terminations.append(Termination(instance_id=view.instance_id, cause=Cause.DRAINED, reason=state))
    return terminations


def over_maximum(pool: PoolScaling, standings: Sequence[Standing]) -> list[Termination]:
    """Machines over a lowered maximum: those without work first, then those with the least work that is likely to be needed, then
    those with the least work, newest first."""
    staying = [each for each in standings if each.staying]
    excess = len(staying) - pool.max_instances
    if excess <= 0:
        return []
    # Two stable sorts, because ids cannot be negated: newest first within what is otherwise equal.
    newest_first = sorted(staying, key=lambda each: (each.view.requested_at, each.view.instance_id), reverse=True)
    least_loss = sorted(
        newest_first,
        key=lambda each: (
            each.view.occupied,
            each.view.joined_at is not None,
            _needed_slots(each.view),
            each.view.slots_in_use,
        ),
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


def _needed_slots(view: InstanceView) -> float:
    """Slots in use, each weighted by the likelihood that its work is needed."""
    return view.slots_in_use - sum(resident.slots * (1.0 - resident.likelihood) for resident in view.residents)


def of_no_use(
    pool: PoolScaling,
    unused: Sequence[InstanceView],
    gangs: Sequence[Gang],
    unserved: Sequence[Unserved],
    blocks: Mapping[str, Block],
    idle_periods: IdlePeriods,
    now: datetime,
) -> list[Termination]:
    """Terminations of machines that no waiting gang will use: members of gangs that cannot be completed, and requests whose work
    no longer waits. A member is kept for a short time if the others may become available within it. A starting machine is kept if
    it will be ready before an idle machine like it would be released."""
    waiting = {gang.token for gang in gangs}
    incomplete = {each.gang.token: each for each in unserved}
    terminations: list[Termination] = []
    for each in unused:
        tokens = [token for token in each.reserved_for if token in incomplete]
        if tokens and not any(_may_be_completed(pool, incomplete[token], blocks, each, now) for token in tokens):
            reason = f"it was launched for {tokens[0]}, {_why_useless(incomplete[tokens[0]].gang, each.slots)}"
            terminations.append(Termination(instance_id=each.instance_id, cause=Cause.STRANDED, reason=reason))
        elif not tokens and _is_not_awaited(each, waiting, idle_periods, now):
            reason = f"it has not joined, and {each.reserved_for[0]} waits for machines no longer"
            terminations.append(Termination(instance_id=each.instance_id, cause=Cause.UNWANTED, reason=reason))
    return terminations


def _why_useless(gang: Gang, size: int) -> str:
    if not _serves(gang, size):
        return f"which needs {gang.slots} slots, and has {size}"
    return "and the other machines of that gang are not available"


def _may_be_completed(
    pool: PoolScaling, each: Unserved, blocks: Mapping[str, Block], member: InstanceView, now: datetime
) -> bool:
    hold_until = held_until(pool, member)
    return now < hold_until and (bool(each.ways) or _asked_again_at(pool, each.gang, blocks) < hold_until)


def _asked_again_at(pool: PoolScaling, gang: Gang, blocks: Mapping[str, Block]) -> datetime:
    """When the first of the blocked offers that serve the gang can be requested again."""
    retries = [
        block.until
        for offer in pool.offers
        if offer.market in gang.markets and _serves(gang, offer.slots)
        if (block := blocks.get(offer.offer_id)) is not None and block.until is not None
    ]
    return min(retries, default=_NEVER)


def held_until(pool: PoolScaling, member: InstanceView) -> datetime:
    return (member.launched_at or member.requested_at) + timedelta(seconds=pool.gang_hold_s)


def _serves(gang: Gang, size: int) -> bool:
    return machines_of(gang, size) is not None


def _is_not_awaited(view: InstanceView, waiting: Set[str], idle_periods: IdlePeriods, now: datetime) -> bool:
    """Whether a machine has not joined and its work no longer waits. A machine that is already paid for counts only while it is
    late: one that will soon be ready is kept for the next job."""
    if view.joined_at is not None:
        return False
    paid = view.observed not in (Observed.UNKNOWN, Observed.PENDING)
    if paid and not idle_periods.boots_for_long(view.offer_id, seconds_between(view.requested_at, now)):
        return False
    for_work = [token for token in view.reserved_for if not token.startswith(_STAND_INS)]
    return bool(for_work) and len(for_work) == len(view.reserved_for) and waiting.isdisjoint(for_work)


def idle_ones(
    pool: PoolScaling,
    spare: Sequence[InstanceView],
    warm: int,
    unserved: Sequence[Unserved],
    room: int,
    blocks: Mapping[str, Block],
    prices: Mapping[str, float | None],
    idle_periods: IdlePeriods,
    now: datetime,
) -> list[Termination]:
    """Idle machines that no waiting gang will use: the most expensive and longest idle first, down to the minimum unless they
    block work. `room`: the number of further machines after the ending ones have ended; `prices`: those
    in force, by offer id."""
    make_room, kept = _room_to_make(spare, unserved, room)

    def idle_s_of(each: InstanceView) -> float:
        return seconds_between(each.idle_since or now, now)

    def overdue_s_of(each: InstanceView) -> float:
        return idle_s_of(each) - idle_periods.of(each.offer_id, prices.get(each.offer_id))

    candidates = spare if make_room else [each for each in spare if overdue_s_of(each) >= 0]
    if not candidates:
        return []  # at most times
    completions = _Completions(pool, unserved, blocks)
    ordered = sorted(
        candidates,
        key=lambda each: (-(prices.get(each.offer_id) or 0.0), each.idle_since or now, each.instance_id),
    )
    terminations: list[Termination] = []
    for each in ordered:
        if each.instance_id in kept:
            continue  # however long it idled: the work that room is made for runs on it, too
        idle_s, overdue_s = idle_s_of(each), overdue_s_of(each)
        # One that makes room is replaced at once, so that the minimum does not protect it.
        if (
            overdue_s >= 0
            and warm - len(terminations) > pool.min_instances
            and not completions.any_for(each, now + timedelta(seconds=pool.gang_hold_s - overdue_s))
        ):
            cause, reason = Cause.IDLE, f"it has been idle for {idle_s:.0f} s and no pending work fits on it"
        elif make_room > 0:
            cause, reason = Cause.MAKE_ROOM, "waiting work does not fit on it and the pool has no room for another"
        else:
            continue
        make_room -= 1
        terminations.append(Termination(instance_id=each.instance_id, cause=cause, reason=reason))
    return terminations


def _room_to_make(spare: Sequence[InstanceView], unserved: Sequence[Unserved], room: int) -> tuple[int, frozenset[str]]:
    """Number of idle machines that block the most important gang that would start without them, and those that it would use
    itself."""
    names = {each.instance_id for each in spare}
    for way in (way for each in unserved for way in each.ways):
        missing = max(0, way.machines_missing - room)
        if missing <= len(names.difference(way.would_use)):
            return missing, frozenset(way.would_use)
    return 0, frozenset()


class _Completions:
    """Gangs without machines because the rest of their machines is blocked for a short time."""

    def __init__(self, pool: PoolScaling, unserved: Sequence[Unserved], blocks: Mapping[str, Block]) -> None:
        self._market_of = {offer.offer_id: offer.market for offer in pool.offers}
        self._tokens = {each.gang.token for each in unserved}
        refused = {shape_of(each.gang): each.gang for each in unserved if not each.ways}
        self._retries = [(gang, _asked_again_at(pool, gang, blocks)) for gang in refused.values()]

    def any_for(self, view: InstanceView, until: datetime) -> bool:
        """Whether the machine is a member of such a gang (`of_no_use` defines for how long) or would be, if the rest is requested
        again by then."""
        market = self._market_of.get(view.offer_id)
        return not self._tokens.isdisjoint(view.reserved_for) or any(
            retry_at < until
            and needs_whole_machines(gang, view.slots) is not None
            and (market is None or market in gang.markets)
            and view.instance_id not in gang.excluded_instances
            for gang, retry_at in self._retries
        )


def room_is_coming(unserved: Sequence[Unserved], room: int, soon: int) -> bool:
    """Whether some waiting gang will have its machines bought as soon as there is room for `soon` more."""
    return any(room < way.machines_missing <= soon for each in unserved for way in each.ways)
