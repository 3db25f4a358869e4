"""What changes of an elastic pool's settings would save, by its own history: beyond the contract.

GET /api/v1/resource-pools/{poolName}/advice            GetPoolAdviceResponse
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

SHORT_DAYS = 7.0
"""A shorter history is no picture of a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One change of one setting, played alone. Money is in the currency of the pool's prices."""

    key: str
    """Of the pool's configuration."""
    now: str
    value: str
    """What it would be."""
    saves_a_month: float
    share: float
    """Of the cost, 0 to 1."""
    wait_mean_s: float
    """How long jobs would wait on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAdvice:
    """`changes`, at most five, the one that saves most first. The other figures are of the pool as it is, by the same
    simulation."""

    computed_at: datetime
    jobs: int
    """Number of jobs of the history that were simulated."""
    left_out: int
    """Number of jobs that were not simulated: the pool as it is configured now can never hold them."""
    days: float
    """Of history, up to `computed_at`."""
    boot_s: float
    """So long machines took to join."""
    cost_a_month: float
    wait_mean_s: float
    played: int
    """Number of simulated changes; 0: the pool has the better value of every setting that could be tried."""
    changes: tuple[SettingChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPoolAdviceResponse:
    """`advice` is the newest that there is; None where none was made yet. `reason`: why there is none, or none that is newer.
    `computing`: one is being made, ask again."""

    pool: str
    advice: PoolAdvice | None = None
    reason: str = ""
    computing: bool = False


def verdict(advice: PoolAdvice) -> str:
    """Of advice without changes; empty where there are some."""
    if advice.changes:
        return ""
    if not advice.played:
        return "The pool has the better value of every setting that could be tried: nothing is to be changed."
    return f"Changes played: {advice.played}. None of them saves anything in this pool."


def remarks(found: GetPoolAdviceResponse) -> Iterator[str]:
    """What a reader of the advice should know, in sentences; the command line and the web interface show the same."""
    advice = found.advice
    if advice is None:
        return
    if advice.changes:
        yield "Each change was played alone: what several save together is another figure."
    yield "Prices are those of now, without interruptions and budgets."
    if advice.left_out:
        pieces = "1 piece" if advice.left_out == 1 else f"{advice.left_out} pieces"
        yield f"Left out: {pieces} of work that the pool as it is configured now can never hold."
    if advice.days < SHORT_DAYS:
        yield "The history is shorter than a week, and a month may be otherwise."
    if found.reason:
        yield f"There is no newer advice: {found.reason}."
