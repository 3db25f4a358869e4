"""A search over hyperparameters; a single training is a search with one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.states import ExperimentState
from resolute_master.domain.ids import ExperimentId, JobId, UserId

DEFAULT_PREEMPTION_TIMEOUT_S = 3600.0
"""How long a task may take to save and end when nothing else is said."""


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
    unmanaged: bool = False
    """Its trials run elsewhere and report; nothing of it is scheduled. Its state follows from theirs."""
    external_id: str | None = None
    """Its owner's own name for it; unmanaged experiments only."""

    @property
    def slots_per_trial(self) -> int:
        return int(self.config["resources"]["slots_per_trial"])

    @property
    def single_node(self) -> bool:
        return bool(self.config["resources"].get("is_single_node"))

    @property
    def max_restarts(self) -> int:
        return int(self.config["max_restarts"])

    @property
    def preemption_timeout_s(self) -> float:
        timeout = self.config.get("preemption_timeout")
        return DEFAULT_PREEMPTION_TIMEOUT_S if timeout is None else float(timeout)

    @property
    def metric(self) -> str:
        """The searcher's metric."""
        return str(self.config["searcher"]["metric"])

    @property
    def smaller_is_better(self) -> bool:
        return bool(self.config["searcher"]["smaller_is_better"])
