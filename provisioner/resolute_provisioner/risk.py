"""What outcomes teach about an offer. Pure: each function takes a belief and returns the next one.

An offer that was refused is left alone for a while that doubles with each further refusal; machines that start and
never join trip a slower breaker of their own, because each of them is paid for; a used-up quota stops the offer for
ten minutes; a request that the cloud calls wrong stops it until a person has changed something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resolute_provisioner.model import OfferBelief, RefusalKind

REFUSAL_BACKOFF_S = 5.0
REFUSAL_BACKOFF_CAP_S = 300.0
"""Capacity comes back within minutes; waiting longer would cost more than the calls do."""
QUOTA_STOP_S = 600.0
BOOT_BACKOFF_S = 30.0
BOOT_BACKOFF_CAP_S = 1800.0
JOIN_TIME_WEIGHT = 0.3
"""Weight of the newest join in the moving average."""


def launched(belief: OfferBelief) -> OfferBelief:
    """The cloud gave a machine: capacity and quota are there."""
    return replace(
        belief,
        launches=belief.launches + 1,
        consecutive_refusals=0,
        backoff_until=None,
        quota_until=None,
        misconfigured="",
    )


def refused(belief: OfferBelief, kind: RefusalKind, message: str, *, asked_at: datetime, now: datetime) -> OfferBelief:
    """The cloud gave none. `asked_at` is when the launch was decided: of several launches decided together, the later
    refusals say nothing that the first did not, and do not lengthen the back-off."""
    same_wave = (
        belief.consecutive_refusals > 0 and belief.last_refusal_at is not None and asked_at <= belief.last_refusal_at
    )
    told = replace(belief, last_refusal=kind, last_message=message)
    if not same_wave:
        told = replace(told, consecutive_refusals=belief.consecutive_refusals + 1, last_refusal_at=now)
    match kind:
        case RefusalKind.BAD_REQUEST:
            return replace(told, misconfigured=message or "the cloud refused the request as wrong")
        case RefusalKind.QUOTA_EXCEEDED:
            return replace(told, quota_until=now + timedelta(seconds=QUOTA_STOP_S))
        case RefusalKind.NO_CAPACITY | RefusalKind.TRANSIENT:
            if same_wave and belief.backoff_until is not None:
                return told
            delay_s = _doubling(REFUSAL_BACKOFF_S, told.consecutive_refusals, REFUSAL_BACKOFF_CAP_S)
            return replace(told, backoff_until=now + timedelta(seconds=delay_s))


def joined(belief: OfferBelief, *, join_time_s: float) -> OfferBelief:
    """A machine's agent connected, `join_time_s` after the machine was asked for."""
    before = belief.join_time_s
    average = join_time_s if before is None else before + JOIN_TIME_WEIGHT * (join_time_s - before)
    return replace(belief, join_time_s=average, consecutive_boot_failures=0, boot_backoff_until=None)


def never_joined(belief: OfferBelief, *, now: datetime) -> OfferBelief:
    """A machine was given back because its agent did not connect in time, or ended before it had connected."""
    failures = belief.consecutive_boot_failures + 1
    delay_s = _doubling(BOOT_BACKOFF_S, failures, BOOT_BACKOFF_CAP_S)
    return replace(belief, consecutive_boot_failures=failures, boot_backoff_until=now + timedelta(seconds=delay_s))


def interrupted(belief: OfferBelief) -> OfferBelief:
    """The cloud took a machine back."""
    return replace(belief, interruptions=belief.interruptions + 1)


def repriced(belief: OfferBelief, price_per_hour: float, *, source: str, as_of: datetime) -> OfferBelief:
    """The cloud told the price of the moment. An older word than the last one changes nothing."""
    if belief.price_as_of is not None and as_of < belief.price_as_of:
        return belief
    return replace(belief, price_per_hour=price_per_hour, price_source=source, price_as_of=as_of)


def forget(belief: OfferBelief) -> OfferBelief:
    """What blocks the offer is taken back, because its configuration changed or a person asks for another try. What
    is known of its quality stays."""
    return replace(
        belief,
        consecutive_refusals=0,
        backoff_until=None,
        quota_until=None,
        misconfigured="",
        consecutive_boot_failures=0,
        boot_backoff_until=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Why an offer is not asked for now. `until` None: until a person acts."""

    until: datetime | None
    reason: str


def block(belief: OfferBelief, now: datetime) -> Block | None:
    """The obstacle that lasts longest, or None when the offer may be asked for."""
    if belief.misconfigured:
        return Block(until=None, reason=f"the cloud calls the request wrong: {belief.misconfigured}")
    timed = [
        (belief.quota_until, f"the quota is used up: {belief.last_message}"),
        (
            belief.boot_backoff_until,
            f"{belief.consecutive_boot_failures} machines in a row started and never joined",
        ),
        (belief.backoff_until, _refusal_text(belief)),
    ]
    pending = [Block(until=until, reason=reason) for until, reason in timed if until is not None and until > now]
    return max(pending, key=lambda each: (each.until or now, each.reason), default=None)


def _refusal_text(belief: OfferBelief) -> str:
    what = "the cloud did not answer" if belief.last_refusal is RefusalKind.TRANSIENT else "no capacity"
    times = "" if belief.consecutive_refusals == 1 else f", {belief.consecutive_refusals} times in a row"
    said = f": {belief.last_message}" if belief.last_message else ""
    return f"{what}{times}{said}"


def _doubling(first_s: float, count: int, cap_s: float) -> float:
    # The exponent is bounded so that a long outage cannot overflow the float.
    return min(cap_s, first_s * 2.0 ** min(count - 1, 32))
