"""Previews of a search."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.wire.rest.searching import SearchForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewHPSearchRequest:
    """A configuration to look at, and the seed to search with."""

    config: Mapping[str, Any] = field(default_factory=dict)
    forecast: bool = False
    """Also return the expected duration and cost; beyond the contract."""
    seconds_per_unit: float | None = None
    """How long one unit of a trial's length takes; None: as in earlier runs of the same experiment."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchUnit:
    """How far a trial goes: `value` units, or as far as its training code decides (`max_length`)."""

    max_length: bool
    name: str | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSummary:
    """How many trials go so far."""

    count: int
    unit: SearchUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """The search in numbers, and the configuration that they follow from."""

    config: Mapping[str, Any]
    forecast: SearchForecast | None = None
    """When it was requested."""
    trials: tuple[TrialSummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewHPSearchResponse:
    """What a search would do."""

    summary: SearchSummary | None = None
