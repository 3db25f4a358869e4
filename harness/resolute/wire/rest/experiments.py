"""Experiments: list and look at."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import ExperimentSortBy, JobState, OrderBy, WireExperimentState
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment as it is listed."""

    archived: bool
    config: Mapping[str, Any]
    id: int
    job_id: str
    name: str
    num_trials: int
    original_config: str
    project_id: int
    project_owner_id: int
    searcher_type: str
    start_time: datetime
    state: WireExperimentState
    username: str
    best_trial_id: int | None = None
    best_trial_searcher_metric: float | None = None
    checkpoint_count: int | None = None
    checkpoint_size: Int64 | None = None
    description: str | None = None
    display_name: str | None = None
    duration: int | None = None
    end_time: datetime | None = None
    external_experiment_id: str | None = None
    external_trial_id: str | None = None
    forked_from: int | None = None
    hyperparameters: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    model_definition_size: int | None = None
    notes: str | None = None
    pachyderm_integration: Mapping[str, Any] | None = None
    parent_archived: bool = False
    progress: float | None = None
    project_name: str | None = None
    resource_pool: str | None = None
    searcher_metric: str | None = None
    trial_ids: tuple[int, ...] = ()
    unmanaged: bool = False
    user_id: int | None = None
    warning: str | None = None
    """Something that its owner should know: so far, that the searcher's metric is not reported."""
    workspace_id: int | None = None
    workspace_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentsResponse:
    """A page of experiments."""

    experiments: tuple[Experiment, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """Place in the queue; `jobs_ahead` -1 is unknown."""

    jobs_ahead: int
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentResponse:
    """One experiment; `job_summary` only while it is active."""

    experiment: Experiment
    config: Mapping[str, Any] | None = None
    job_summary: JobSummary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Int32FieldFilter:
    """Bounds on a whole number; `incl` and `not_in` list some."""

    gt: int | None = None
    gte: int | None = None
    incl: tuple[int, ...] = ()
    lt: int | None = None
    lte: int | None = None
    not_in: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentsQuery:
    """Query of the experiment list. `limit` 0 means 100, -1 everything, -2 counts only."""

    archived: bool | None = None
    description: str | None = None
    experiment_id_filter: Int32FieldFilter | None = None
    labels: tuple[str, ...] = ()
    limit: int = 0
    name: str | None = None
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    project_id: int | None = None
    show_trial_data: bool = False
    sort_by: ExperimentSortBy = ExperimentSortBy.UNSPECIFIED
    states: tuple[WireExperimentState, ...] = ()
    user_ids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
