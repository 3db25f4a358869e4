"""When a limit is reached, and the consequences: pure, from an account's own value.

A limit is reached when the cost so far plus a save and the following end, at the current rate, add up to it; market prices are
calculated with their possible rise meanwhile. From then on no new work starts, and running work is preempted (the *wind-down*),
so that the limit holds including the save. A limit per day or month is lifted when the next one begins, in UTC; a limit of a
whole experiment only when it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote

from resolute.errors import InvalidInput
from resolute_master.domain.account import (
    END_S,
    NOTHING,
    RISE,
    Account,
    Owner,
    Rate,
    WindDown,
    account_id,
    next_day,
    next_month,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.prices import offer_price
from resolute_master.lifecycle.step import Step

State = Step | ClusterState
"""A state to read."""

LEAST_LIFE_S = 300.0
"""Minimum time that a budget must cover for a launch: otherwise a machine would boot and be released."""

ROUNDING = 1e-9
"""Largest rounding error of an amount."""

LATER = timedelta(milliseconds=1)
"""Time that is added to computed moments, so that the limit is reached when they come."""

FAR_S = 10 * 365 * 86_400.0
"""Time beyond which no moment is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that is reached; `until` is when its next period begins, None for a limit without periods."""

    words: str
    limit: float
    spent: float
    until: datetime | None
    ahead_s: float = 0.0
    """Additional time that must be covered: for a save."""
    ahead: float = 0.0
    """Cost of that time."""
    rises: bool = False
    """Whether market prices are calculated with their possible rise."""


def reached(account: Account, now: datetime, *, more: Rate = NOTHING) -> Reached | None:
    """The limit that an additional rate of spending would reach, a save included; the one that lasts longest."""
    current = account.until(now)
    rate, ahead_s = current.rate + more, current.wind_down_s
    ahead = rate.most_per_hour * ahead_s / 3600.0
    for each in _limits(current):
        if each.spent + ahead >= each.limit - ROUNDING:
            return replace(each, ahead_s=ahead_s, ahead=ahead, rises=rate.moving_per_hour > 0.0)
    return None


def left(account: Account, ahead_s: float) -> Iterator[tuple[Reached, float]]:
    """The limits, the one that holds longest first, each with the sum that is left if the present rate continues for `ahead_s`
    seconds."""
    ahead = account.rate.most_per_hour * ahead_s / 3600.0
    for each in _limits(account):
        yield each, each.limit - each.spent - ahead - ROUNDING


def wound_down(
    account: Account, reason: str, until: datetime | None, now: datetime, *, more: Rate = NOTHING
) -> Account:
    """The account after its limit is reached. `more` is the rate that the refused work would add. An account that winds down
    already is returned unchanged."""
    if account.wind_down is not None:
        return account
    again = account.rate + more
    wind_down = WindDown(
        reason=reason,
        since=now,
        until=until,
        rate_per_hour=again.per_hour,
        moving_rate_per_hour=again.moving_per_hour,
        most_per_hour=account.rate.most_per_hour,
    )
    return replace(account.until(now), wind_down=wind_down)


def resumed(account: Account, now: datetime) -> Account:
    """The account after the wind-down: the next period has begun, or the limit was raised."""
    return replace(account.until(now), wind_down=None)


def exhausted(account: Account, now: datetime) -> bool:
    """Whether an account that winds down would reach its limit again at once if its work continued."""
    again = NOTHING if account.wind_down is None else account.wind_down.rate
    more = Rate(
        per_hour=max(0.0, again.per_hour - account.rate_per_hour),
        moving_per_hour=max(0.0, again.moving_per_hour - account.moving_rate_per_hour),
    )
    return reached(account, now, more=more) is not None


def due(account: Account) -> datetime | None:
    """When the limits must be checked again if nothing changes; None for never."""
    wind_down, rate = account.wind_down, account.rate_per_hour
    if wind_down is not None and wind_down.until is not None:
        return wind_down.until
    if not rate or not account.limits:
        return None
    ahead = (
        account.rate.most_per_hour * account.wind_down_s
        if wind_down is None
        else max(rate, wind_down.most_per_hour) * END_S
    )
    moments = []
    for each in _limits(account):
        left = each.limit - each.spent - ahead / 3600.0
        seconds = max(0.0, left) / rate * 3600.0
        comes = account.at + timedelta(seconds=seconds) + LATER if seconds < FAR_S else None
        moments += [moment for moment in (comes, each.until) if moment is not None]
    return min(moments, default=None)


def deadline(account: Account) -> datetime | None:
    """The time by which work that winds down must have ended: the time of the kill if the price rises at once by the reserved
    amount, so that a rise up to that amount does not bring the time nearer."""
    wind_down = account.wind_down
    if wind_down is None:
        return None
    return due(replace(account, rate_per_hour=max(account.rate_per_hour, wind_down.most_per_hour)))


def _limits(account: Account) -> Iterator[Reached]:
    """The configured limits, each with the amount spent."""
    at, limits = account.at, account.limits
    every = (
        ("", limits.in_all, account.in_all, None),
        (" this month", limits.per_month, account.in_month, next_month(at)),
        (" today", limits.per_day, account.in_day, next_day(at)),
    )
    for words, limit, spent, until in every:
        if limit is not None:
            yield Reached(words=words, limit=limit, spent=spent, until=until)


def reason(account: Account, found: Reached, called: str) -> str:
    """The text for users; `called` is the name of the owner."""
    rise = f", what is on spot at up to {RISE:g} times its price of now" if found.rises else ""
    spent = (
        f"{found.spent:.4f} of {found.limit:g} spent{found.words}, with up to {found.ahead_s:.0f} s for a save to be paid "
        f"({found.ahead:.4f}{rise})"
    )
    whose = f"{account.owner.value} {called}"
    match account.owner:
        case Owner.EXPERIMENT:
            return (
                f"max_cost of {whose} is reached: {spent}; raise it with "
                f"`det experiment set max-cost {called} AMOUNT`, then activate the experiment"
            )
        case Owner.WORKSPACE | Owner.POOL:
            noun = "workspace" if account.owner is Owner.WORKSPACE else "resource-pool"
            until = f"work resumes at {found.until:%Y-%m-%d %H:%M} UTC" if found.until else "no work resumes"
            return (
                f"the budget of {whose} is used up: {spent}; {until}, or when it is raised with "
                f"`det {noun} set-budget {quote(called)}`"
            )


def no_room(found: Reached, pool: str, machines: int) -> str:
    """Why only a number of further machines of an offer can be launched. The text omits the current spending, so that it is
    stable."""
    left = f"more than {machines} more machine(s)" if machines else "another machine"
    raised = f"raise it with `det resource-pool set-budget {quote(pool)}`"
    return f"the pool's budget of {found.limit:g}{found.words} does not cover {left}; {raised}"


# -------------------------------------------------------------------------------------------------- what is held back


def hold_of_pool(state: State, pool: PoolName) -> str:
    """Why no work may start in the pool; "" if it may."""
    account = state.get(Account, account_id(Owner.POOL, pool))
    return "" if account is None else account.wind_down_reason


def hold_of_workspace(state: State, workspace: int) -> str:
    """Why no work of the workspace that costs may start; "" if it may."""
    account = state.get(Account, account_id(Owner.WORKSPACE, workspace))
    return "" if account is None else account.wind_down_reason


def hold_in(state: State, policy: PoolPolicy | None, workspace: int) -> str:
    """Why no work of the workspace may start in the pool; "" if it may. The budget concerns paid machines only."""
    elastic = policy is not None and policy.scaling is not None
    return hold_of_workspace(state, workspace) if elastic else ""


def with_hold(step: Step, job: Job) -> Job:
    """The job with the reason why its work may not start in its present pool."""
    hold = hold_in(step, step.pools.get(job.pool), job.workspace_id)
    return job if job.hold == hold else replace(job, hold=hold)


def check_priced(state: State, policy: PoolPolicy | None, pool: PoolName) -> None:
    """Raises `InvalidInput` where a cost cannot be kept under a limit, because it is not known or never arises."""
    if policy is None:
        return
    if policy.scaling is None:
        raise InvalidInput(
            f"resources.max_cost: pool '{pool}' starts no machines, so the cost of work there is unknown; "
            "remove the limit, or choose an elastic pool"
        )
    unknown = [offer.offer_id for offer in policy.scaling.offers if offer_price(state, pool, offer) is None]
    if unknown:
        more = f" and {len(unknown) - 5} more" if unknown[5:] else ""
        raise InvalidInput(
            f"resources.max_cost: the price of {', '.join(unknown[:5])}{more} of pool '{pool}' is unknown, so no limit "
            "can be enforced; give the price in the pool's configuration, or remove the limit"
        )
