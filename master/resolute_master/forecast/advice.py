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
    """A request for advice. `pool` has the prices in force. `jobs` were submitted within `days`; a machine joins after `boot_s`."""

    pool: PoolPolicy
    jobs: tuple[TraceJob, ...]
    days: float
    catalogue: Catalogue
    boot_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The effect of setting `key` of the pool to `value` instead of `now`, in the currency of the prices and in seconds."""

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
    """Advice for a pool. `savings`: the largest first. The other fields describe the pool as it is: the same jobs, simulated
    without a change."""

    jobs: int
    left_out: int
    """Number of jobs that the pool in its present size can never hold."""
    days: float
    cost_a_month: float
    wait_mean_s: float
    played: int
    """Number of changes; 0 if the pool has the better value of every setting."""
    savings: tuple[Saving, ...]


Advisor = Callable[[Question], Awaitable[Advice]]
"""Computes advice. Raises `InvalidInput`, with a remedy, for a pool without a possible answer; `Unavailable` if it takes too
long."""
