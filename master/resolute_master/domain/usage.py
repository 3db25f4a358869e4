"""Past usage of a pool by its users: a decaying average, exact between any two moments."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName, UserId

MEASUREMENTS_A_HALF_LIFE = 32
"""Measurements per half-life. In the time between two, an average moves 2 % of the way to the present usage. More measurements
would reschedule every pool for imperceptible changes."""

LEAST_INTERVAL_S = 10.0
"""Least time between two measurements, however short the half-life is: a measurement writes one row per user."""

GRAIN = 1 / 16
"""Slots. Charges are multiples of it: a smaller difference is not worth a preemption. A power of two, so that sums of charges are
exact, in any order."""

FORGOTTEN = 1 / 1024
"""Slots. A smaller average of a user who holds nothing is dropped, after some ten half-lives."""


def interval(half_life_s: float) -> timedelta:
    """Time from one measurement of a pool to the next."""
    return timedelta(seconds=max(LEAST_INTERVAL_S, half_life_s / MEASUREMENTS_A_HALF_LIFE))


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """One user's past in one workspace and one pool; what a workspace has used is the sum over its users.

    `average` is of the slots held until `at`, where what was held one half-life ago counts half: a user who holds k slots for ever
    comes to k. `held` is what has been held since. `charged` is the average as it was measured at `measured_at`, and what the
    scheduler goes by.
    """

    id: str
    """`<pool>/<workspace>/<user>`."""
    pool: PoolName
    workspace_id: int
    owner: UserId
    at: datetime
    measured_at: datetime
    held: int = 0
    average: float = 0.0
    charged: float = 0.0

    @staticmethod
    def none_yet(pool: PoolName, workspace_id: int, owner: UserId, *, now: datetime) -> Usage:
        return Usage(
            id=usage_id(pool, workspace_id, owner),
            pool=pool,
            workspace_id=workspace_id,
            owner=owner,
            at=now,
            measured_at=now,
        )

    def until(self, now: datetime, half_life_s: float) -> Usage:
        """The usage until `now`, with the slots that were held since. A clock that goes back adds nothing."""
        seconds = (now - self.at).total_seconds()
        if seconds <= 0:
            return self
        kept: float = 0.5 ** (seconds / half_life_s)
        return replace(self, at=now, average=self.average * kept + self.held * (1 - kept))

    def holding(self, slots: int, now: datetime, half_life_s: float) -> Usage:
        """The usage with this number of held slots from now on."""
        return replace(self.until(now, half_life_s), held=slots)

    def measured(self, now: datetime, half_life_s: float) -> Usage | None:
        """The usage, charged with its average from now on; None when the row can be dropped."""
        current = self.until(now, half_life_s)
        if current.held == 0 and current.average < FORGOTTEN:
            return None
        return replace(current, measured_at=now, charged=round(current.average / GRAIN) * GRAIN)


def usage_id(pool: PoolName, workspace_id: int, owner: UserId) -> str:
    """The id of the usage of one user in one workspace."""
    return f"{pool}/{workspace_id}/{owner}"
