"""The history of an offer. Pure: each function takes a belief and returns the next one.

A refused offer is skipped for a time that doubles with each further refusal. Machines that start and never join trip a separate,
slower breaker, because each of them costs money. An exhausted quota stops the offer and its family for ten minutes. A request that
the cloud calls invalid stops the offer until an operator has changed the configuration (where a pool counts failed launches, it is
retried after its back-off: `launch_errors`).

`ranking` computes the expected price.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resolute_provisioner import gaps
from resolute_provisioner.model import (
    Cause,
    Evidence,
    Offer,
    OfferBelief,
    PoolScaling,
    RefusalKind,
    Termination,
    Unpaid,
)
from resolute_provisioner.offers import too_dear

BY_CHOICE = (Cause.CONSOLIDATION, Cause.OTHER_MARKET)
"""Causes of ends that only save money."""

REFUSAL_BACKOFF_S = 5.0
REFUSAL_BACKOFF_CAP_S = 60.0
"""A refused request costs nothing, and capacity that came back unseen is lost: at 300 s a sixteenth of what a scarce zone had,
at 60 s a seventieth (`benchmarks.spot`). A cloud with too many requests refuses them (`THROTTLED`)."""
THROTTLED_BACKOFF_S = 15.0
"""First pause after too many requests of the account, in which the limit recovers."""
QUOTA_STOP_S = 600.0
BOOT_BACKOFF_S = 30.0
BOOT_BACKOFF_CAP_S = 1800.0
JITTER = 0.25
"""Jitter of a pause, as a fraction, so that offers that were refused together are not retried
together."""
JOIN_TIME_WEIGHT = 0.3
"""Weight of the newest join in the moving average."""
GANG_BACKOFF_S = 60.0
GANG_BACKOFF_CAP_S = 3600.0
GANG_MEMORY_S = 7200.0
"""Time after such a pause after which the next one counts as the first again."""
HALF_LIFE_S = 24 * 3600.0
"""Time after which an observation counts half: prices change by the hour, and machines are lost by the day."""


# --------------------------------------------------------------------------------------------------------- updates


def launched(belief: OfferBelief, *, now: datetime) -> OfferBelief:
    """Records a launch: capacity and quota are available."""
    seen = weighed(belief.seen, now)
    return replace(
        belief,
        launches=belief.launches + 1,
        consecutive_refusals=0,
        backoff_until=None,
        quota_until=None,
        misconfigured="",
        seen=replace(seen, requests=seen.requests + 1, granted=seen.granted + 1),
        gaps=gaps.launched(belief.gaps, now=now),
    )


def refused(
    belief: OfferBelief, kind: RefusalKind, message: str, *, asked_at: datetime, now: datetime, token: str = ""
) -> OfferBelief:
    """The cloud refused for lack of capacity, at once or by ending a machine that it had started. `asked_at` is when the launch
    was decided: of several launches decided together, the later refusals contain no news, and do not lengthen the back-off.
    `token` is the launch's own: the jitter is drawn from it."""
    same_wave = (
        belief.consecutive_refusals > 0 and belief.last_refusal_at is not None and asked_at <= belief.last_refusal_at
    )
    told = replace(belief, last_refusal=kind, last_message=message)
    if not same_wave:
        seen = weighed(belief.seen, now)
        told = replace(
            told,
            consecutive_refusals=belief.consecutive_refusals + 1,
            last_refusal_at=now,
            seen=replace(seen, requests=seen.requests + 1),
        )
    match kind:
        case RefusalKind.BAD_REQUEST:
            wrong = message or "the cloud refused the request as wrong"
            return replace(_paused(told, REFUSAL_BACKOFF_S, same_wave, token, now), misconfigured=wrong)
        case RefusalKind.QUOTA_EXCEEDED:
            return replace(told, quota_until=now + timedelta(seconds=QUOTA_STOP_S))
        case RefusalKind.NO_CAPACITY | RefusalKind.TRANSIENT | RefusalKind.THROTTLED:
            first_s = THROTTLED_BACKOFF_S if kind is RefusalKind.THROTTLED else REFUSAL_BACKOFF_S
            return _paused(told, first_s, same_wave, token, now)


def _paused(told: OfferBelief, first_s: float, same_wave: bool, token: str, now: datetime) -> OfferBelief:
    if same_wave and told.backoff_until is not None:
        return told
    delay_s = _doubling(first_s, told.consecutive_refusals, REFUSAL_BACKOFF_CAP_S)
    delay_s *= 1.0 + JITTER * (2.0 * _fraction(token or told.offer_id) - 1.0)
    return replace(told, backoff_until=now + timedelta(seconds=delay_s))


def stranded(belief: OfferBelief, *, now: datetime) -> OfferBelief:
    """Records that the offer gave some machines of a gang and not all, and that those were released. Each such attempt is paid
    for, so the next one waits longer. Work that needs one machine is not affected."""
    until = belief.gang_backoff_until
    if until is not None and now < until:
        return belief  # another member of the same gang
    recent = until is not None and (now - until).total_seconds() < GANG_MEMORY_S
    count = belief.partial_gangs + 1 if recent else 1
    delay_s = _doubling(GANG_BACKOFF_S, count, GANG_BACKOFF_CAP_S)
    return replace(belief, partial_gangs=count, gang_backoff_until=now + timedelta(seconds=delay_s))


def joined(belief: OfferBelief, *, join_time_s: float, now: datetime) -> OfferBelief:
    """Records that a machine's agent connected, `join_time_s` after the machine was requested."""
    before, seen = belief.join_time_s, weighed(belief.seen, now)
    average = join_time_s if before is None else before + JOIN_TIME_WEIGHT * (join_time_s - before)
    return replace(
        belief,
        join_time_s=average,
        consecutive_boot_failures=0,
        brought="",
        boot_backoff_until=None,
        seen=replace(seen, boots=seen.boots + 1, joins=seen.joins + 1),
    )


def joined_short(belief: OfferBelief, *, brought: int, promised: int, now: datetime) -> OfferBelief:
    """Records that a machine's agent connected with fewer slots than the offer has, too few for its request: a device is broken
    or has no driver, or the configured number is wrong. The next machine would have the same defect."""
    return replace(never_joined(belief, now=now), brought=f"{brought} of {promised}")


def never_joined(belief: OfferBelief, *, now: datetime) -> OfferBelief:
    """Records that a machine was released because its agent did not connect in time, or that it ended before it had connected."""
    failures, seen = belief.consecutive_boot_failures + 1, weighed(belief.seen, now)
    delay_s = _doubling(BOOT_BACKOFF_S, failures, BOOT_BACKOFF_CAP_S)
    return replace(
        belief,
        consecutive_boot_failures=failures,
        brought="",
        boot_backoff_until=now + timedelta(seconds=delay_s),
        seen=replace(seen, boots=seen.boots + 1),
    )


def ended(belief: OfferBelief, *, exposure_s: float, interrupted: bool, now: datetime) -> OfferBelief:
    """Records the end of a machine that had joined, after `exposure_s` of use: the cloud reclaimed it, or the pool released it."""
    seen = weighed(belief.seen, now)
    return replace(
        belief,
        interruptions=belief.interruptions + interrupted,
        seen=replace(
            seen,
            exposure_h=seen.exposure_h + exposure_s / 3600.0,
            interruptions=seen.interruptions + interrupted,
        ),
    )


def disturbed(belief: OfferBelief, *, now: datetime) -> OfferBelief:
    """Records that work on a machine of the offer is moved to save money: see `disruption`."""
    recent = (at for at in belief.disturbed_at if (now - at).total_seconds() < 3600.0)
    return replace(belief, disturbed_at=(*recent, now))


def used_again(belief: OfferBelief, idle_since: datetime, *, now: datetime) -> OfferBelief:
    """Records that a machine has work again after it was idle since then."""
    return replace(belief, gaps=gaps.used_again(belief.gaps, (now - idle_since).total_seconds(), now=now))


def ordered(belief: OfferBelief, end: Termination, *, now: datetime, idle_since: datetime | None = None) -> OfferBelief:
    """Updates the offer after an order to end one of its machines; an order is given once."""
    if end.drain:
        return disturbed(belief, now=now) if end.cause in BY_CHOICE else belief
    match end.cause:
        case Cause.NEVER_JOINED:
            return never_joined(belief, now=now)
        case Cause.STRANDED:
            return stranded(belief, now=now)
        case Cause.IDLE if idle_since is not None:
            return replace(belief, gaps=gaps.given_back(belief.gaps, idle_since, now=now))
        case _:
            return belief


def repriced(belief: OfferBelief, price_per_hour: float, *, source: str, as_of: datetime) -> OfferBelief:
    """Records a current price of the cloud. An older one than the last changes nothing."""
    if belief.price_as_of is not None and as_of < belief.price_as_of:
        return belief
    return replace(belief, price_per_hour=price_per_hour, price_source=source, price_as_of=as_of)


def forget(belief: OfferBelief) -> OfferBelief:
    """Clear the block of the offer, because its configuration changed or an operator requests another attempt. Its learnt quality
    stays."""
    return replace(
        belief,
        consecutive_refusals=0,
        backoff_until=None,
        quota_until=None,
        misconfigured="",
        consecutive_boot_failures=0,
        boot_backoff_until=None,
        partial_gangs=0,
        gang_backoff_until=None,
    )


def weighed(seen: Evidence, now: datetime) -> Evidence:
    """The same evidence with the weight that it has at `now`."""
    weight = weight_of(seen, now)
    if seen.as_of is None or weight == 1.0:
        return replace(seen, as_of=seen.as_of or now)
    return Evidence(
        as_of=now,
        requests=seen.requests * weight,
        granted=seen.granted * weight,
        boots=seen.boots * weight,
        joins=seen.joins * weight,
        exposure_h=seen.exposure_h * weight,
        interruptions=seen.interruptions * weight,
    )


def weight_of(seen: Evidence, now: datetime) -> float:
    """Factor of the counts at `now`; at most 1."""
    if seen.as_of is None or now <= seen.as_of:
        return 1.0
    return float(0.5 ** ((now - seen.as_of).total_seconds() / HALF_LIFE_S))


# ------------------------------------------------------------------------------------------------------- obstacles


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Why an offer is not requested now. `until` None: until something else than time has changed."""

    until: datetime | None
    reason: str
    misconfigured: bool = False
    """Whether an operator has to act."""


def block(belief: OfferBelief, now: datetime) -> Block | None:
    """The obstacle that lasts longest of those that the offer's own history makes, or None. See `blocks`."""
    if belief.misconfigured:
        reason = f"the cloud calls the request wrong: {belief.misconfigured}"
        return Block(until=None, reason=reason, misconfigured=True)
    pending: list[tuple[datetime, str]] = []
    if belief.quota_until is not None and belief.quota_until > now:
        pending.append((belief.quota_until, f"the quota is used up: {belief.last_message}"))
    if belief.boot_backoff_until is not None and belief.boot_backoff_until > now:
        pending.append((belief.boot_backoff_until, _boot_text(belief)))
    if belief.backoff_until is not None and belief.backoff_until > now:
        pending.append((belief.backoff_until, _refusal_text(belief)))
    if not pending:
        return None
    until, reason = max(pending)
    return Block(until=until, reason=reason)


def blocks(offers: Iterable[Offer], beliefs: Mapping[str, OfferBelief], now: datetime) -> dict[str, Block]:
    """The offers that may not be requested now, by their ids in order. A quota stops the whole family."""
    offers = sorted(offers, key=lambda offer: offer.offer_id)
    spent = _spent_families(offers, beliefs, now)
    found: dict[str, Block] = {}
    for offer in offers:
        belief = beliefs.get(offer.offer_id)
        own = None if belief is None else block(belief, now)
        if own is None and (why := too_dear(offer, belief)):
            own = Block(until=None, reason=why)
        of_family = spent.get(offer.family)
        if of_family is not None and (own is None or (own.until is not None and own.until < of_family[0])):
            until, offer_id, message = of_family
            told = "" if offer_id == offer.offer_id else f" (reported for offer {offer_id})"
            own = Block(until=until, reason=f"the quota of {offer.family} is used up{told}: {message}")
        if own is not None:
            found[offer.offer_id] = own
    return found


def gang_blocks(
    pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime, *, machines: int
) -> dict[str, Block]:
    """The offers that may not be requested for this number of machines of one gang, two or more, by id."""
    found = money_blocks(pool, now, machines=machines)
    for offer in sorted(pool.offers, key=lambda each: each.offer_id):
        belief = beliefs.get(offer.offer_id)
        if belief is not None and (partial := _partial(belief, now)) is not None:
            found[offer.offer_id] = longer(found.get(offer.offer_id), partial)
    return dict(sorted(found.items()))


def gang_limits(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime) -> dict[str, int]:
    """How many machines of an offer may be asked for one gang that needs several; an offer without a limit is not named."""
    return {**payable(pool, now), **dict.fromkeys(partial_offers(beliefs, now), 0)}


def partial_offers(beliefs: Mapping[str, OfferBelief], now: datetime) -> tuple[str, ...]:
    """The offers that gave some machines of a gang and not all lately: they are asked for none of a gang that needs several."""
    return tuple(id_ for id_, belief in beliefs.items() if _partial(belief, now) is not None)


def payable(pool: PoolScaling, now: datetime) -> dict[str, int]:
    """How many more machines of an offer the pool can pay for; an offer without a limit is not named."""
    return {each.offer_id: each.machines for each in pool.unpaid if _lasts(each, now)}


def _partial(belief: OfferBelief, now: datetime) -> Block | None:
    until = belief.gang_backoff_until
    if until is None or until <= now:
        return None
    times = "" if belief.partial_gangs == 1 else f", {belief.partial_gangs} times in a row"
    return Block(until=until, reason=f"gave some machines of a gang and not all{times}")


def money_blocks(pool: PoolScaling, now: datetime, *, machines: int) -> dict[str, Block]:
    """The offers of which the budget does not cover this number of further machines, by id."""
    return {
        each.offer_id: Block(until=each.until, reason=each.reason)
        for each in sorted(pool.unpaid, key=lambda each: each.offer_id)
        if each.machines < machines and _lasts(each, now)
    }


def _lasts(unpaid: Unpaid, now: datetime) -> bool:
    return unpaid.until is None or unpaid.until > now


def longer(known: Block | None, other: Block) -> Block:
    """The one that lasts longer; the other one when both last as long."""
    lasts = known is not None and (known.until is None or other.until is None or known.until > other.until)
    return known if known is not None and lasts else other


def on_probation(belief: OfferBelief | None) -> bool:
    """It was refused, and has given nothing since: it is asked for one machine before it is asked for several."""
    return belief is not None and belief.consecutive_refusals > 0


def _spent_families(
    offers: Iterable[Offer], beliefs: Mapping[str, OfferBelief], now: datetime
) -> dict[str, tuple[datetime, str, str]]:
    """Until when, the offer that was reported, and the message."""
    spent: dict[str, tuple[datetime, str, str]] = {}
    for offer in offers:
        belief = beliefs.get(offer.offer_id)
        if offer.family and belief is not None and belief.quota_until is not None and belief.quota_until > now:
            word = (belief.quota_until, offer.offer_id, belief.last_message)
            spent[offer.family] = max(word, spent.get(offer.family, word))
    return spent


def _boot_text(belief: OfferBelief) -> str:
    if not belief.brought:
        return f"{belief.consecutive_boot_failures} machines in a row started and never joined"
    return f"the last machine joined with {belief.brought} slots, fewer than its offer has"


def _refusal_text(belief: OfferBelief) -> str:
    match belief.last_refusal:
        case RefusalKind.TRANSIENT:
            what = "the cloud did not answer"
        case RefusalKind.BAD_REQUEST:
            what = "the cloud calls the request wrong"
        case RefusalKind.THROTTLED:
            what = "the cloud limits the rate of requests"
        case _:
            what = "no capacity"
    times = "" if belief.consecutive_refusals == 1 else f", {belief.consecutive_refusals} times in a row"
    said = f": {belief.last_message}" if belief.last_message else ""
    return f"{what}{times}{said}"


def _doubling(first_s: float, count: int, cap_s: float) -> float:
    # The exponent is bounded so that a long outage cannot overflow the float.
    return min(cap_s, first_s * 2.0 ** min(count - 1, 32))


def _fraction(token: str) -> float:
    """Between 0 and 1, evenly over tokens, and always the same for one token."""
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:8]) / 2**64
