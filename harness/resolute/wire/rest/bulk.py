"""One action on several experiments or runs, each with an answer of its own."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass

from resolute.wire.rest.enums import WireExperimentState


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkExperimentFilters:
    """Which experiments are meant, in place of their ids; what is left out filters nothing."""

    archived: bool | None = None
    description: str | None = None
    excluded_experiment_ids: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    name: str | None = None
    project_id: int | None = None
    states: tuple[WireExperimentState, ...] = ()
    user_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KillExperimentsRequest:
    """So are the bodies of all actions that need no more: activate, archive, cancel, delete, pause, unarchive."""

    experiment_ids: tuple[int, ...] = ()
    filters: BulkExperimentFilters | None = None
    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveExperimentsRequest:
    """Where they shall be."""

    destination_project_id: int
    experiment_ids: tuple[int, ...] = ()
    filters: BulkExperimentFilters | None = None
    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutExperimentsRetainLogsRequest:
    """How many days their logs are kept; -1 is for ever."""

    num_days: int
    experiment_ids: tuple[int, ...] = ()
    filters: BulkExperimentFilters | None = None
    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentActionResult:
    """An empty `error` is success."""

    error: str
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillExperimentsResponse:
    """A result for each experiment, by id. So are the answers of all actions."""

    results: tuple[ExperimentActionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRunsRequest:
    """A run of this API is a trial. So are the bodies of archive, delete, pause, resume and unarchive."""

    filter: str | None = None
    project_id: int | None = None
    run_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRunsRequest:
    """Where they shall be. `skip_multitrial` passes over those that would take others along."""

    destination_project_id: int
    filter: str | None = None
    run_ids: tuple[int, ...] = ()
    skip_multitrial: bool = False
    source_project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActionResult:
    """An empty `error` is success."""

    error: str
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRunsResponse:
    """A result for each run, by id. So are the answers of all actions."""

    results: tuple[RunActionResult, ...]
