"""Accounts: the spending of an experiment, a workspace or a pool, and its limits; exact between any two moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from resolute_master.domain.copies import replace

LEAST_RATE = 1e-9
"""Least rate; a smaller one is a rounding error of sums and differences."""

DEFAULT_SAVE_S = 60.0
"""Assumed time of a save and the following end, before any has been measured."""

SAVE_MARGIN = 1.5
"""Factor by which the next save may exceed the measured ones."""

LEAST_SAVE_S = 5.0
"""Least assumed time of a save and the following end: the request has to reach the task, and its end the master."""

END_S = 10.0
"""An experiment's work that has not saved and ended this long before its limit is killed, since a kill takes at most this long."""

RISE = 2.0
"""Factor by which a market price may rise while work saves and ends without exceeding a limit: this reserve is held back. No cloud
bounds the rise."""

LIGHTER = 1 / 4
"""Weight of a faster save against the slower ones before it; a slower one replaces the estimate at once."""


class Owner(StrEnum):
    """Kind of the owner of an account; the first part of its id."""

    EXPERIMENT = "experiment"
    WORKSPACE = "workspace"
    POOL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on spending; None is no limit. Days and months are those of UTC."""

    in_all: float | None = None
    per_day: float | None = None
    per_month: float | None = None

    def __bool__(self) -> bool:
        return (self.in_all, self.per_day, self.per_month) != (None, None, None)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Spending per hour, and the part of it at market prices, which may rise."""

    per_hour: float = 0.0
    moving_per_hour: float = 0.0

    @property
    def most_per_hour(self) -> float:
        """The rate that it may reach while tasks save and end."""
        return self.per_hour + (RISE - 1.0) * self.moving_per_hour

    def __add__(self, other: Rate) -> Rate:
        return Rate(
            per_hour=self.per_hour + other.per_hour, moving_per_hour=self.moving_per_hour + other.moving_per_hour
        )

    def __sub__(self, other: Rate) -> Rate:
        return Rate(
            per_hour=self.per_hour - other.per_hour, moving_per_hour=self.moving_per_hour - other.moving_per_hour
        )


NOTHING = Rate()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindDown:
    """A wind-down: no work starts, and running work was asked to save and end. `until` None: until the limit is raised."""

    reason: str
    since: datetime
    until: datetime | None
    rate_per_hour: float = 0.0
    """Spending per hour at its beginning, which would resume after it."""
    moving_rate_per_hour: float = 0.0
    """The part of it at market prices."""
    most_per_hour: float = 0.0
    """Rate that the work at its beginning may reach while it saves and ends: a rise up to this was reserved."""

    @property
    def rate(self) -> Rate:
        return Rate(per_hour=self.rate_per_hour, moving_per_hour=self.moving_rate_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`rate_per_hour` is the spending since `at`, `moving_rate_per_hour` its part at market prices; the sums are until `at`: in
    total, in its UTC day, and in its month.

    `save_s` is how long saves and ends have taken lately, None before the first. `configured` is the limit of the master's
    configuration when it was last read; later changes by an operator are in `limits`.
    """

    id: str
    """`<owner>/<its id or name>`."""
    at: datetime
    rate_per_hour: float = 0.0
    in_all: float = 0.0
    in_day: float = 0.0
    in_month: float = 0.0
    limits: Limits = NO_LIMITS
    configured: Limits = NO_LIMITS
    save_s: float | None = None
    wind_down: WindDown | None = None
    moving_rate_per_hour: float = 0.0

    @property
    def owner(self) -> Owner:
        return Owner(self.id.partition("/")[0])

    @property
    def name(self) -> str:
        """The id or name of the owner."""
        return self.id.partition("/")[2]

    @property
    def wind_down_s(self) -> float:
        """Time before the limit at which work is asked to save and end: the duration of a save, and of a kill of the rest."""
        return DEFAULT_SAVE_S if self.save_s is None else max(LEAST_SAVE_S, SAVE_MARGIN * self.save_s) + END_S

    @property
    def wind_down_reason(self) -> str:
        """Why no work that is charged to it may start; "" if it may."""
        return "" if self.wind_down is None else self.wind_down.reason

    @property
    def rate(self) -> Rate:
        return Rate(per_hour=self.rate_per_hour, moving_per_hour=self.moving_rate_per_hour)

    def until(self, now: datetime) -> Account:
        """The account with the spending since `at`. A clock that goes back adds nothing."""
        if now <= self.at:
            return self
        spent = self._costing(self.at, now)
        return replace(
            self,
            at=now,
            in_all=self.in_all + spent,
            in_day=self.in_day + spent if day_of(now) == day_of(self.at) else self._costing(day_of(now), now),
            in_month=self.in_month + spent if month_of(now) == month_of(self.at) else self._costing(month_of(now), now),
        )

    def _costing(self, since: datetime, until: datetime) -> float:
        return self.rate_per_hour * (until - since).total_seconds() / 3600.0

    def paying(self, more: Rate, now: datetime) -> Account:
        """The account with a rate that is changed by this amount from now on."""
        rate = self.rate + more
        return replace(
            self.until(now), rate_per_hour=_rounded(rate.per_hour), moving_rate_per_hour=_rounded(rate.moving_per_hour)
        )

    def corrected(self, more: Callable[[datetime | None], float], now: datetime) -> Account:
        """The account after a correction for a start or an end that became known later: `more` was spent since a moment, or since
        the beginning where that is None; it may be negative. Sums never fall below 0."""
        current = self.until(now)
        return replace(
            current,
            in_all=max(0.0, current.in_all + more(None)),
            in_day=max(0.0, current.in_day + more(day_of(now))),
            in_month=max(0.0, current.in_month + more(month_of(now))),
        )

    def having_saved(self, took_s: float) -> Account:
        """The account with the measured time of a save and the end after it."""
        known = self.save_s
        return replace(self, save_s=took_s if known is None or took_s >= known else known + (took_s - known) * LIGHTER)


def _rounded(per_hour: float) -> float:
    return per_hour if per_hour > LEAST_RATE else 0.0


def account_id(owner: Owner, name: str | int) -> str:
    return f"{owner.value}/{name}"


def day_of(at: datetime) -> datetime:
    """Beginning of the day of a time, in UTC."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def month_of(at: datetime) -> datetime:
    """Beginning of the month of a time, in UTC."""
    return day_of(at).replace(day=1)


def next_day(at: datetime) -> datetime:
    return day_of(at) + timedelta(days=1)


def next_month(at: datetime) -> datetime:
    return month_of(month_of(at) + timedelta(days=32))
