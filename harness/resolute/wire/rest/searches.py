"""Searches of experiments and runs by the filter language, and what they can be searched by.

POST /api/v1/experiments-search                        SearchExperimentsRequest -> SearchExperimentsResponse
POST /api/v1/runs                                      SearchRunsRequest -> SearchRunsResponse
GET  /api/v1/projects/{id}/columns                     GetProjectColumnsResponse
GET  /api/v1/projects/{id}/experiments/metric-ranges   GetProjectNumericMetricsRangeResponse
GET  /api/v1/projects/{projectId}/metadata/{key}       GetMetadataValuesResponse
GET  /api/v1/experiment/labels                         GetExperimentLabelsResponse
"""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import ColumnType, LocationType, TableType, WireTrialState
from resolute.wire.rest.experiments import Experiment
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchExperimentsRequest:
    """`filter` is JSON text, `sort` is `<column>=asc,<column>=desc`; `limit` 0 is everything."""

    filter: str = ""
    limit: int = 0
    offset: int = 0
    project_id: int = 0
    sort: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchExperimentExperiment:
    """An experiment with its best trial, if it has one."""

    experiment: Experiment
    best_trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchExperimentsResponse:
    """A page of what fits."""

    experiments: tuple[SearchExperimentExperiment, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRunsRequest:
    """The same of runs."""

    filter: str = ""
    limit: int = 0
    offset: int = 0
    project_id: int = 0
    sort: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRunExperiment:
    """What a run is part of."""

    description: str
    id: int
    is_multitrial: bool
    name: str
    progress: float
    resource_pool: str
    searcher_metric: str
    searcher_type: str
    unmanaged: bool
    external_experiment_id: str | None = None
    forked_from: int | None = None
    pachyderm_integration: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRun:
    """A trial as a row of a table."""

    archived: bool
    checkpoint_count: int
    checkpoint_size: Int64
    id: int
    parent_archived: bool
    project_id: int
    project_name: str
    start_time: datetime
    state: WireTrialState
    workspace_id: int
    workspace_name: str
    duration: int | None = None
    end_time: datetime | None = None
    experiment: FlatRunExperiment | None = None
    external_run_id: str | None = None
    hyperparameters: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    local_id: str | None = None
    log_policy_matched: str | None = None
    metadata: Mapping[str, Any] | None = None
    searcher_metric_value: float | None = None
    summary_metrics: Mapping[str, Any] | None = None
    user_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRunsResponse:
    """A page of what fits."""

    pagination: Pagination
    runs: tuple[FlatRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectColumn:
    """A column that filters and sorts may name."""

    column: str
    location: LocationType
    type: ColumnType
    display_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectColumnsQuery:
    """Unspecified is the table of experiments."""

    table_type: TableType = TableType.UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectColumnsResponse:
    """Those that all rows have, then hyperparameters, then metrics."""

    columns: tuple[ProjectColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRange:
    """The smallest and the largest value of a column."""

    max: float
    metrics_name: str
    min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectNumericMetricsRangeResponse:
    """The ranges of the metrics of the best trials of a project's experiments, by the names of columns."""

    ranges: tuple[MetricsRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetadataValuesResponse:
    """Each once, in order."""

    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentLabelsQuery:
    """`project_id` 0 is all."""

    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentLabelsResponse:
    """The most frequent first."""

    labels: tuple[str, ...]
