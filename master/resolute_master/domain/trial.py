"""Trials: points of a search with their hyperparameters, and the runs that train them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from resolute.wire.states import ExperimentState, LogPolicyAction
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, ExperimentId, JobId, TaskId, TrialId


class CheckpointRef(Struct, frozen=True, kw_only=True, gc=False):
    """The checkpoint that the next run starts from."""

    uuid: str
    steps_completed: int


class Validation(Struct, frozen=True, kw_only=True, gc=False):
    """One validation that holds the searcher's metric."""

    steps_completed: int
    metric: float
    at: datetime
    metrics: Mapping[str, Any]


class Pace(Struct, frozen=True, kw_only=True, gc=False):
    """Pace of a trial, from the reports of one run: it includes saves and validations, but not starts and restarts."""

    run_id: int
    first_steps: int
    first_at: datetime
    """The run's first report."""
    steps: int
    at: datetime
    """Its last report."""
    interval_s: float = 0.0
    """Seconds between the last two reports."""
    earlier_step_s: float | None = None
    """Seconds per step in the previous run, until this one has reported two step counts."""

    @property
    def step_s(self) -> float | None:
        """Seconds per step; None until two reports have arrived."""
        steps = self.steps - self.first_steps
        return (self.at - self.first_at).total_seconds() / steps if steps > 0 else self.earlier_step_s

    def reported(self, run_id: int, steps: int, at: datetime) -> Pace:
        """The pace with one more report. A report that is older than the last one changes nothing."""
        if run_id > self.run_id:
            return Pace(run_id=run_id, first_steps=steps, first_at=at, steps=steps, at=at, earlier_step_s=self.step_s)
        if run_id < self.run_id or steps <= self.steps or at <= self.at:
            return self
        return replace(self, steps=steps, at=at, interval_s=(at - self.at).total_seconds())


class LogMatch(Struct, frozen=True, kw_only=True, gc=False):
    """A match of a log policy: kept once per action, pattern and agent."""

    action: LogPolicyAction
    pattern: str
    line: str
    """The first such line, or its beginning."""
    agent: AgentId | None = None
    """Agent that wrote the line; for `exclude_node` only."""


class Failure(Struct, frozen=True, kw_only=True, gc=False):
    """The last failure of a run that was the task's own."""

    reason: str
    error: str = ""
    """The traceback, or the end of its output."""
    code: int | None = None
    times: int = 1
    """Number of consecutive runs that have failed like this."""


class Trial(Struct, frozen=True, kw_only=True, gc=False):
    """`run_id` counts allocations: +1 with each new one; reports of older runs are refused.

    `steps_completed` is the largest step count of the newest reporting run. `restarts` counts failures only.
    `searcher_done` means that the search needs no more of it.
    """

    id: TrialId
    experiment_id: ExperimentId
    job_id: JobId
    task_id: TaskId
    request_id: str
    state: ExperimentState
    hparams: Mapping[str, Any]
    seed: int
    started_at: datetime
    ended_at: datetime | None = None
    run_id: int = 0
    restarts: int = 0
    evictions: int = 0
    """Number of its runs that were preempted for other allocations."""
    steps_completed: int = 0
    reported_run: int = 0
    """The run whose reports `steps_completed` counts."""
    pace: Pace | None = None
    """Its pace; None until it has reported."""
    latest_checkpoint: CheckpointRef | None = None
    latest_validation: Validation | None = None
    best_validation: Validation | None = None
    searched_steps: int = -1
    """Step count of the last validation that the searcher got; lower ones are repetitions."""
    searcher_done: bool = False
    progress: float = 0.0
    runner_state: str = ""
    invalid_hparams: bool = False
    kill_at: datetime | None = None
    """When an ending trial is killed if it has not ended by itself (invalid hyperparameters)."""
    warm_start_checkpoint: str | None = None
    log_matches: tuple[LogMatch, ...] = ()
    log_policy_matched: str | None = None
    """The name of the log policy that matched last."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    exit_message: str = ""
    failure: Failure | None = None
    log_retention_days: int | None = None
    """Days that its log is kept after its end; -1 is for ever, None is the cluster's setting."""
    external_id: str | None = None
    """Its owner's name for it; unmanaged trials only."""
    last_report_at: datetime | None = None
    """When an unmanaged trial last sent a heartbeat or a state; None for a managed trial."""

    @property
    def blocked_agents(self) -> tuple[AgentId, ...]:
        """Agents on which no later run of it may be placed."""
        found = {match.agent for match in self.log_matches if match.agent is not None}
        return tuple(sorted(found))

    @property
    def retries_canceled_by(self) -> tuple[LogMatch, ...]:
        """Matches because of which its next failure is final; empty without any."""
        return tuple(match for match in self.log_matches if match.action is LogPolicyAction.CANCEL_RETRIES)
