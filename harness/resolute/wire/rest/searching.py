"""Lengths that a search gives to its trials, and the state of its trials.

    GET  /api/v1/trials/{trialId}/searcher/operation             GetCurrentOperationResponse
    POST /api/v1/trials/{trialId}/searcher/completed_operation   CompleteOperationRequest
    GET  /api/v1/experiments/{experimentId}/search               GetSearchResponse

The first two are those of the harness before release 0.38; the third is this master's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateAfter:
    """Train until `length` in all; a whole number as text."""

    length: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOperation:
    """What a trial is to do."""

    validate_after: ValidateAfter


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCurrentOperationResponse:
    """`completed`: it has done so, and has nothing else to do now."""

    op: SearchOperation
    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedLength:
    """A whole number, or one as text."""

    length: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteOperationRequest:
    """The length that was trained until, and the metric that was reached: a number, or NaN, Infinity, -Infinity as text."""

    op: CompletedLength
    searcher_metric: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTrial:
    """A trial as its search sees it. Rungs and brackets count from 0, ranks from 1; null is "has none"."""

    trial_id: int
    number: int
    state: str
    """training, waiting, stopped or ended."""
    reason: str = ""
    bracket: int | None = None
    rung: int | None = None
    rungs: int | None = None
    rank: int | None = None
    ranked: int | None = None
    length: int | None = None
    metric: float | None = None
    """Its best value of the searcher's metric."""
    likelihood: float | None = None
    """While it trains in a search that compares its trials: how likely the search continues with it after its next result, by all
    results so far. The scheduler looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSearchResponse:
    """A search, its trials in the order in which they were made, and the trial with the best metric."""

    name: str
    metric: str
    smaller_is_better: bool
    progress: float
    trials: tuple[SearchedTrial, ...] = ()
    best_trial_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchForecast:
    """The expected duration and cost of a search on its pool. Missing values are unknown: `unknown` is the reason."""

    pool: str
    seconds_per_unit: float | None = None
    basis: str = ""
    """What the numbers rest on, in words."""
    hours: float | None = None
    hours_least: float | None = None
    hours_most: float | None = None
    dollars: float | None = None
    dollars_least: float | None = None
    dollars_most: float | None = None
    machines: int | None = None
    """At a time, at most."""
    unknown: str = ""
