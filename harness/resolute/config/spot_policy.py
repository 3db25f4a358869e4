"""When work without a deadline leaves the spot market, and when it comes back."""

from __future__ import annotations

from resolute.config.base import ConfigModel
from resolute.config.durations import Duration, PositiveDuration


class SpotFallbackPolicy(ConfigModel):
    """Of a pool with offers on both markets. Work with `resources.deadline` follows its deadline instead."""

    after: Duration = 0.0
    """How long work waits for a spot machine before one on demand will do."""
    return_after: PositiveDuration | None = None
    """After how long on demand work moves back to spot when that is to be had; null lets it stay."""
