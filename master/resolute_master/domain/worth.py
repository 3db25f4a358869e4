"""The worth of a trial to its search, for the scheduler and the planner."""

from __future__ import annotations

from msgspec import Struct

EIGHTHS = 8
"""Number of likelihood levels, so that work falls into few classes."""

LARGEST_SCORE = 1e300
"""Largest absolute score; larger ones are cut, because a worth contains no infinite numbers."""


class Worth(Struct, frozen=True, kw_only=True, gc=False):
    """The likelihood that the search continues with the trial after its next result, by the results so far, and its progress.

    Within one job, what is worth more gets slots first. Among equally important work of all jobs, what an end would waste counts in
    the proportion of `likelihood`.
    """

    likelihood: float = 1.0
    """0 to 1, in eighths: 0 for a trial that would not continue by the results known now."""
    rung: int = 0
    """The rung that it trains for."""
    score: float = 0.0
    """Its newest result, the smaller the better."""

    @property
    def turn(self) -> tuple[float, int, float]:
        """Sort key among the trials of a search: the smaller, the earlier the trial gets slots."""
        return (-self.likelihood, -self.rung, self.score)


ORDINARY = Worth()
"""The worth of work that no search ranks."""


def likely(share: float) -> float:
    """The share as a likelihood: the nearest eighth, but not 0."""
    return max(round(min(share, 1.0) * EIGHTHS), 1) / EIGHTHS


def ranked(likelihood: float, rung: int, score: float = 0.0) -> Worth:
    """The worth of a trial whose newest result has this score."""
    return Worth(likelihood=likelihood, rung=rung, score=min(max(score, -LARGEST_SCORE), LARGEST_SCORE))
