"""When work that runs may be disturbed for the sake of money. Pure.

Only ends of our own choice are meant: what is broken, taken by the cloud or over the maximum goes at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute_provisioner.model import Disruption, OfferBelief, Window

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Whether work may be disturbed now, and when that may change by time alone."""

    given: bool
    revisit_at: datetime | None = None


def leave(policy: Disruption, beliefs: Mapping[str, OfferBelief], now: datetime) -> Leave:
    """Both the window and the rate have to allow it."""
    if policy.windows and not any(_covers(window, now) for window in policy.windows):
        starts = [at for window in policy.windows if (at := _next_start(window, now)) is not None]
        return Leave(given=False, revisit_at=min(starts, default=None))
    if policy.max_per_hour is None:
        return Leave(given=True)
    recent = sorted(at for belief in beliefs.values() for at in belief.disturbed_at if now - at < HOUR)
    if len(recent) < policy.max_per_hour:
        return Leave(given=True)
    # One more is allowed when so many are an hour old that the limit is not reached.
    return Leave(given=False, revisit_at=recent[-policy.max_per_hour] + HOUR if policy.max_per_hour else None)


def _covers(window: Window, now: datetime) -> bool:
    """Today's stretch, or yesterday's that goes past midnight."""
    over_midnight = DAY if window.end_s <= window.start_s else timedelta()
    for midnight in (_midnight(now) - DAY, _midnight(now)):
        start = midnight + timedelta(seconds=window.start_s)
        end = midnight + timedelta(seconds=window.end_s) + over_midnight
        if midnight.weekday() in window.weekdays and start <= now < end:
            return True
    return False


def _next_start(window: Window, now: datetime) -> datetime | None:
    days = (_midnight(now) + number * DAY for number in range(8))
    starts = (day + timedelta(seconds=window.start_s) for day in days if day.weekday() in window.weekdays)
    return next((start for start in starts if start > now), None)


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
