"""A search over hyperparameters; a single training is a search with one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.states import ExperimentState
from resolute_master.domain.ids import ExperimentId, JobId, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """`config` is the complete defaulted configuration; `original_config` is the text that the user sent.

    `context_hash` names the uploaded model definition (sha256 of its archive), which is stored beside the state.
    `searcher` is the search method's own saved state.
    """

    id: ExperimentId
    job_id: JobId
    owner: UserId
    workspace_id: int
    project_id: int
    name: str
    config: Mapping[str, Any]
    original_config: str
    context_hash: str
    state: ExperimentState
    started_at: datetime
    searcher: Mapping[str, Any]
    description: str = ""
    labels: tuple[str, ...] = ()
    notes: str = ""
    archived: bool = False
    parent_id: ExperimentId | None = None
    ended_at: datetime | None = None
    progress: float = 0.0
    best_validation: float | None = None
    shutdown_reason: str = ""
