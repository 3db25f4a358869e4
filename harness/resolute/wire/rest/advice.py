"""Settings that would save money in an elastic pool, from simulations of its history: beyond the contract.

GET /api/v1/resource-pools/{poolName}/advice            GetPoolAdviceResponse
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

SHORT_DAYS = 7.0
"""A shorter history does not represent a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One change of one setting, simulated alone. Money is in the currency of the pool's prices."""

    key: str
    """Key in the pool's configuration."""
    now: str
    value: str
    """The other value."""
    saves_a_month: float
    share: float
    """Share of the cost, 0 to 1."""
    wait_mean_s: float
    """Mean wait of jobs with the other value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAdvice:
    """`changes` contains at most five changes, the largest saving first. The other figures are those of the pool as it is, from the
    same simulation."""

    computed_at: datetime
    jobs: int
    """Number of jobs of the history that were simulated."""
    left_out: int
    """Number of jobs that were not simulated, because the pool with its present configuration can never hold them."""
    days: float
    """Length of the history, up to `computed_at`."""
    boot_s: float
    """Boot time of machines in the simulation."""
    cost_a_month: float
    wait_mean_s: float
    played: int
    """Number of simulated changes; 0 if the pool has the better value of every setting."""
    changes: tuple[SettingChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPoolAdviceResponse:
    """`advice` is the newest advice; None if there is none yet. `reason` explains why there is none, or no newer one. While
    `computing`, repeat the request."""

    pool: str
    advice: PoolAdvice | None = None
    reason: str = ""
    computing: bool = False


def conclusion(advice: PoolAdvice) -> str:
    """The result of advice without changes; empty if there are changes."""
    if advice.changes:
        return ""
    if not advice.played:
        return "The pool already has the better value of every setting that was considered."
    return f"Simulated changes: {advice.played}. None of them saves anything in this pool."


def remarks(found: GetPoolAdviceResponse) -> Iterator[str]:
    """Limits of the advice, as sentences for the command line and the web interface."""
    advice = found.advice
    if advice is None:
        return
    if advice.changes:
        yield "Each change was simulated alone: the savings of several changes do not add up."
    yield "The simulation uses present prices, and has no interruptions and budgets."
    if advice.left_out:
        pieces = "1 piece" if advice.left_out == 1 else f"{advice.left_out} pieces"
        yield f"Excluded: {pieces} of work that the pool with its present configuration can never hold."
    if advice.days < SHORT_DAYS:
        yield "The history is shorter than a week, so a month may differ."
    if found.reason:
        yield f"There is no newer advice: {found.reason}."
