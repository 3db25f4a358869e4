"""When work that runs may be disturbed for the sake of money. Pure.

Only ends of our own choice are meant: what is broken, taken by the cloud or over the maximum goes at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resolute_provisioner.model import Disruption, OfferBelief, Window

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The running work that may be preempted now, and when that may change by time alone."""

    machines: int | None = None
    """Number of machines whose work may be disrupted; None is any number."""
    revisit_at: datetime | None = None
    """When more machines may be allowed."""

    @property
    def given(self) -> bool:
        return self.allows(1)

    def allows(self, machines: int) -> bool:
        return self.machines is None or machines <= self.machines

    def after(self, machines: int) -> Leave:
        """The leave after work on this number of machines was preempted."""
        return self if self.machines is None else replace(self, machines=self.machines - machines)


def leave(policy: Disruption, beliefs: Mapping[str, OfferBelief], now: datetime) -> Leave:
    """The leave that both the window and the rate allow."""
    if policy.windows and not any(_covers(window, now) for window in policy.windows):
        starts = [at for window in policy.windows if (at := _next_start(window, now)) is not None]
        return Leave(machines=0, revisit_at=min(starts, default=None))
    limit = policy.max_per_hour
    if limit is None:
        return Leave()
    recent = sorted(at for belief in beliefs.values() for at in belief.disturbed_at if now - at < HOUR)
    # One more is allowed when enough of them are an hour old that fewer than the limit remain.
    more_at = recent[max(0, len(recent) - limit)] + HOUR if recent and limit else None
    return Leave(machines=max(0, limit - len(recent)), revisit_at=more_at)


def _covers(window: Window, now: datetime) -> bool:
    """Whether a window covers the time: today's, or yesterday's across midnight."""
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
