"""The request to simulate a pool's history under other settings, and its answer.

`Advisor` is a port of the master: the composition root gives one, which runs the simulation (`resolute_sim.twin`) beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.catalogue.shapes import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`pool` with the prices that are in force. `jobs` came within `days`; a machine joins after `boot_s`."""

    pool: PoolPolicy
    jobs: tuple[TraceJob, ...]
    days: float
    catalogue: Catalogue
    boot_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What it does that `key` of the pool is `value` and not `now`, in the currency of the prices and in seconds."""

    key: str
    now: str
    value: str
    saves_a_month: float
    share: float
    """Saved share of the cost, 0 to 1."""
    wait_mean_s: float
    """Mean wait of the jobs with the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`savings`, the largest first. The rest is of the pool as it is: the same jobs, played without a change."""

    jobs: int
    left_out: int
    """Jobs that the pool of today can never hold."""
    days: float
    cost_a_month: float
    wait_mean_s: float
    played: int
    """Number of changes; 0 if the pool has the better value of every setting."""
    savings: tuple[Saving, ...]


Advisor = Callable[[Question], Awaitable[Advice]]
"""Raises `InvalidInput` for a pool of which nothing can be said, with what to do; `Unavailable` where it takes too long."""
