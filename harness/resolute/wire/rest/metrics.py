"""Metric reports and their streams."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Means of a report, and each batch where they were sent. Names and values are the user's."""

    avg_metrics: Mapping[str, Any] = field(default_factory=dict)
    batch_metrics: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMetrics:
    """One report of a run at `steps_completed`."""

    metrics: Metrics
    trial_id: int
    trial_run_id: int
    report_time: datetime | None = None
    steps_completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrialMetricsRequest:
    """A report for one group."""

    group: str
    metrics: TrialMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReport:
    """A stored report. `metrics` holds the values under `validation_metrics` for the validation group and under
    `avg_metrics` for every other group.
    """

    archived: bool
    end_time: datetime
    group: str
    id: int
    metrics: Mapping[str, Any]
    total_batches: int
    trial_id: int
    trial_run_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetricsResponse:
    """One item of the metric stream: a batch of reports."""

    metrics: tuple[MetricsReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrainingMetricsResponse:
    """One item of the stream of training metrics."""

    metrics: tuple[MetricsReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetValidationMetricsResponse:
    """One item of the stream of validation metrics."""

    metrics: tuple[MetricsReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetricsQuery:
    """Query of the metric stream; `trial_ids` must not be empty."""

    group: str = ""
    trial_ids: tuple[int, ...] = ()
