"""Series of metrics for charts: of several trials, and as streams while an experiment runs.

GET /api/v1/trials/time-series                                          CompareTrialsResponse
GET /api/v1/experiments/{experimentId}/validation-history               GetExperimentValidationHistoryResponse
GET /api/v1/experiments/metrics-stream/metric-names                     stream of ExpMetricNamesResponse
GET /api/v1/experiments/{experimentId}/metrics-stream/batches           stream of MetricBatchesResponse
GET /api/v1/experiments/{experimentId}/metrics-stream/trials-snapshot   stream of TrialsSnapshotResponse
GET /api/v1/experiments/{experimentId}/metrics-stream/trials-sample     stream of TrialsSampleResponse
"""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.rest.enums import MetricType
from resolute.wire.rest.experiments import Int32FieldFilter
from resolute.wire.rest.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationHistoryEntry:
    """A validation of an experiment that was better than all before it."""

    end_time: datetime
    searcher_metric: float
    trial_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentValidationHistoryResponse:
    """In the order of their times."""

    validation_history: tuple[ValidationHistoryEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPoint:
    """The reports after a number of batches, for the requested names."""

    batches: int
    time: datetime
    epoch: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsampledMetrics:
    """The points of one group, by batches."""

    data: tuple[DataPoint, ...]
    group: str
    type: MetricType


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableTrial:
    """A trial with its series."""

    metrics: tuple[DownsampledMetrics, ...]
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTrialsResponse:
    """In the order of the trials' ids."""

    trials: tuple[ComparableTrial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleFieldFilter:
    """Bounds on a number."""

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampFieldFilter:
    """Bounds on a time."""

    gt: datetime | None = None
    gte: datetime | None = None
    lt: datetime | None = None
    lte: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeriesFilter:
    """`name` is "batches", "time", or the name of a metric; the range of its type decides."""

    double_range: DoubleFieldFilter | None = None
    integer_range: Int32FieldFilter | None = None
    name: str = "batches"
    time_range: TimestampFieldFilter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTrialsQuery:
    """`metric_ids` are `<group>.<name>`; `metric_names` are of `group`, or of the one that `metric_type` names. `max_datapoints` 0
    is 1000."""

    end_batches: int = 0
    group: str | None = None
    max_datapoints: int = 0
    metric_ids: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    metric_type: MetricType = MetricType.UNSPECIFIED
    start_batches: int = 0
    time_series_filter: TimeSeriesFilter | None = None
    trial_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricIdentifier:
    """A metric of a group."""

    group: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpMetricNamesResponse:
    """Names that were not sent before."""

    metric_names: tuple[MetricIdentifier, ...] = ()
    searcher_metrics: tuple[str, ...] = ()
    training_metrics: tuple[str, ...] = ()
    validation_metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpMetricNamesQuery:
    """`ids` of experiments; `period_seconds` 0 is 30."""

    ids: tuple[int, ...] = ()
    period_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBatchesResponse:
    """Batches with reports of the metric that were not sent before."""

    batches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBatchesQuery:
    """`metric_name` must be given."""

    group: str | None = None
    metric_name: str = ""
    metric_type: MetricType = MetricType.UNSPECIFIED
    period_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSnapshotResponseTrial:
    """What a trial had reached."""

    batches_processed: int
    hparams: Mapping[str, Any]
    metric: float
    trial_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSnapshotResponse:
    """The trials that have a value, if it was not sent before."""

    trials: tuple[TrialsSnapshotResponseTrial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSnapshotQuery:
    """The metric after `batches_processed`, or up to `batches_margin` before or after."""

    batches_margin: int = 0
    batches_processed: int = 0
    group: str | None = None
    metric_name: str = ""
    metric_type: MetricType = MetricType.UNSPECIFIED
    period_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSampleResponseTrial:
    """The points of a trial that were not sent before."""

    data: tuple[DataPoint, ...]
    hparams: Mapping[str, Any]
    trial_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSampleResponse:
    """The best trials: those that are among them now and were not, and those that were and are not."""

    demoted_trials: tuple[int, ...]
    promoted_trials: tuple[int, ...]
    trials: tuple[TrialsSampleResponseTrial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsSampleQuery:
    """`max_trials` 0 is 25, `max_datapoints` 0 is 1000, `end_batches` 0 is the end."""

    end_batches: int = 0
    group: str | None = None
    max_datapoints: int = 0
    max_trials: int = 0
    metric_name: str = ""
    metric_type: MetricType = MetricType.UNSPECIFIED
    period_seconds: int = 0
    start_batches: int = 0
