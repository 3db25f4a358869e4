"""When a pool gives up launching for a while, because launches fail in a row. Pure.

A launch counts as failed when it was refused, at once or later, and no other offer of the pool with as many slots was available.
The pool gives up at `launch_error_retries` + 1 failures in a row, each of a launch that was decided within `launch_error_timeout`
of the time from which the pool could retry; a granted machine resets the count. So a pause that is longer than the timeout (an
exhausted quota, a back-off) does not reset it. After that the pool requests nothing for `launch_error_timeout`, and work that its
machines cannot hold fails. Then the count restarts. A timeout of 0 counts nothing.

Where failures are counted, a request that the cloud calls invalid is retried after a back-off: it fails, and counts. Without a
timeout it waits for an operator.

The outcome of each launch is stored in the belief about its offer, and the newest of a pool's is the pool's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resolute_provisioner import risk
from resolute_provisioner.model import OfferBelief, PoolLaunch, PoolScaling
from resolute_provisioner.risk import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchError:
    """The reason why a pool has given up."""

    until: datetime
    reason: str


def after_failure(
    pool: PoolScaling, beliefs: Mapping[str, OfferBelief], offer_id: str, *, asked_at: datetime, now: datetime
) -> PoolLaunch | None:
    """The outcome to keep of a refusal that the beliefs have learnt already; None when it is no failure of the pool. Of
    several launches decided together, at `asked_at`, one counts."""
    if pool.launch_error_timeout_s <= 0 or _another(pool, beliefs, offer_id, now):
        return None
    _, last = _newest(beliefs)
    again_at = _again_at(pool, beliefs, offer_id, now)
    if last is not None and last.failures and asked_at <= last.at:
        return None
    if (
        last is None
        or not last.failures
        or last.failures > pool.launch_error_retries
        or _forgotten(pool, last, asked_at)
    ):
        return PoolLaunch(at=now, failures=1, again_at=again_at)
    return PoolLaunch(at=now, failures=last.failures + 1, again_at=again_at)


def after_success(pool: PoolScaling, now: datetime) -> PoolLaunch | None:
    """The outcome to store for a granted machine."""
    return PoolLaunch(at=now, failures=0) if pool.launch_error_timeout_s > 0 else None


def launch_error(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime) -> LaunchError | None:
    """Why the pool has given up; None if it has not."""
    if pool.launch_error_timeout_s <= 0:
        return None
    belief, last = _newest(beliefs)
    if belief is None or last is None or last.failures <= pool.launch_error_retries:
        return None
    until = last.at + _timeout(pool)
    if now >= until:
        return None
    launches = "the last launch has failed" if last.failures == 1 else f"{last.failures} launches in a row have failed"
    said = f" ({belief.last_refusal}): {belief.last_message}" if belief.last_refusal else ""
    return LaunchError(until=until, reason=f"{launches}, the last one of offer {belief.offer_id}{said}")


def blocks(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime) -> dict[str, Block]:
    """The offers that may not be requested now, by their ids in order: what keeps each back, its price, and the pool as a whole."""
    found = _obstacles(pool, beliefs, now)
    for id_, unpaid in risk.money_blocks(pool, now, machines=1).items():
        found[id_] = risk.longer(found.get(id_), unpaid)
    error = launch_error(pool, beliefs, now)
    if error is None:
        return dict(sorted(found.items()))
    given_up = Block(until=error.until, reason=f"the pool has given up (launch_error_timeout): {error.reason}")
    return {id_: risk.longer(found.get(id_), given_up) for id_ in sorted(offer.offer_id for offer in pool.offers)}


def _obstacles(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime) -> dict[str, Block]:
    """The blocks of `risk.blocks`, except that where failures are counted, a wrong request only has its back-off."""
    if pool.launch_error_timeout_s > 0:
        beliefs = {
            id_: replace(each, misconfigured="") if each.misconfigured and each.backoff_until is not None else each
            for id_, each in beliefs.items()
        }
    return risk.blocks(pool.offers, beliefs, now)


def _alternatives(pool: PoolScaling, offer_id: str) -> list[str]:
    """Offers with at least as many slots as this one, itself included."""
    slots = next((offer.slots for offer in pool.offers if offer.offer_id == offer_id), 0)
    return [offer.offer_id for offer in pool.offers if offer.slots >= slots or offer.offer_id == offer_id]


def _another(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], offer_id: str, now: datetime) -> bool:
    blocked = _obstacles(pool, beliefs, now)
    return any(id_ != offer_id and id_ not in blocked for id_ in _alternatives(pool, offer_id))


def _again_at(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], offer_id: str, now: datetime) -> datetime | None:
    """When one of the alternatives may be requested again; None for at once, or for never by itself."""
    blocked = _obstacles(pool, beliefs, now)
    found = [blocked[id_].until for id_ in _alternatives(pool, offer_id) if id_ in blocked]
    return min((until for until in found if until is not None), default=None)


def _forgotten(pool: PoolScaling, last: PoolLaunch, asked_at: datetime) -> bool:
    """Whether no launch was requested for so long, although it could have been, that the last one no longer counts."""
    return asked_at - max(last.at, last.again_at or last.at) > _timeout(pool)


def _newest(beliefs: Mapping[str, OfferBelief]) -> tuple[OfferBelief, PoolLaunch] | tuple[None, None]:
    """The newest launch. Among launches of the same time, one that succeeded comes first, then the one with the most failures in
    a row."""
    known = [(each, each.pool_launch) for each in beliefs.values() if each.pool_launch is not None]
    return max(
        known,
        key=lambda each: (each[1].at, not each[1].failures, each[1].failures, each[0].offer_id),
        default=(None, None),
    )


def _timeout(pool: PoolScaling) -> timedelta:
    return timedelta(seconds=pool.launch_error_timeout_s)
