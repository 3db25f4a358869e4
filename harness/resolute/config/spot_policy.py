"""When work without a deadline leaves the spot market, and when it returns."""

from __future__ import annotations

from resolute.config.base import ConfigModel
from resolute.config.durations import Duration, PositiveDuration


class SpotFallbackPolicy(ConfigModel):
    """The choice of a pool with offers on both markets. Work with `resources.deadline` follows its deadline instead."""

    keeps_null = frozenset({"return_after"})

    after: Duration = 0.0
    """Time that work waits for a spot machine before it accepts one on demand."""
    return_after: PositiveDuration | None = 600.0
    """Time on demand after which work with a checkpoint of this run moves back to spot if available; null keeps it on demand."""
