"""The cluster's state in the API at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from resolute.client.sdk import TERMINAL, Resolute
from resolute.errors import NotFound
from resolute.wire.rest.agents import Agent
from resolute.wire.rest.enums import WireTaskState
from resolute.wire.rest.extensions import Decision, Instance, TrialAllocation
from resolute.wire.rest.jobs import GetJobsQuery, Job
from resolute.wire.rest.trials import Trial

DECISIONS = 8
GONE = ("gone", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One state. `losses` contains (step, loss) in the order of the steps; `accuracy` is that of the newest validation."""

    state: str
    trial: Trial | None = None
    allocations: tuple[TrialAllocation, ...] = ()
    instances: tuple[Instance, ...] = ()
    agents: tuple[Agent, ...] = ()
    jobs: tuple[tuple[Job, str], ...] = ()
    """The queue, with a reason for each job's position."""
    decisions: tuple[Decision, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    accuracy: float | None = None

    @property
    def steps(self) -> int:
        return self.trial.total_batches_processed if self.trial is not None else 0

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def running_on(self) -> str | None:
        """The machine of the current run, if there is one."""
        last = self.allocations[-1] if self.allocations else None
        if last is None or last.state is not WireTaskState.RUNNING or not last.instance_ids:
            return None
        return last.instance_ids[0]

    @property
    def living(self) -> tuple[Instance, ...]:
        return tuple(one for one in self.instances if one.state not in GONE)


class Watcher:
    """Reads states repeatedly; it reads the losses, of which there are many, on request only."""

    def __init__(self, api: Resolute, experiment_id: int) -> None:
        self._api = api
        self._experiment = experiment_id
        self._losses: tuple[tuple[int, float], ...] = ()
        self._accuracy: float | None = None

    def look(self, *, with_losses: bool) -> Picture:
        api = self._api
        state = str(api.experiments.get(self._experiment).experiment.state.name).removeprefix("STATE_")
        trials = api.experiments.trials(self._experiment)
        trial = trials[0] if trials else None
        if trial is not None and with_losses:
            self._read_metrics(trial.id)
        jobs = [job.full for job in api.queue.list(GetJobsQuery()) if job.full is not None]
        return Picture(
            state=state,
            trial=trial,
            allocations=api.trials.allocations(trial.id) if trial is not None else (),
            instances=api.cluster.instances(),
            agents=api.agents.list(),
            jobs=tuple((job, self._why(job.job_id)) for job in jobs),
            decisions=api.cluster.decisions(DECISIONS),
            losses=self._losses,
            accuracy=self._accuracy,
        )

    def _why(self, job_id: str) -> str:
        try:
            return self._api.queue.explain(job_id).reason
        except NotFound:
            return "it has just ended"

    def _read_metrics(self, trial_id: int) -> None:
        newest: dict[int, float] = {}
        for report in self._api.trials.metrics([trial_id], "training"):
            if not report.archived and "loss" in report.metrics.get("avg_metrics", {}):
                newest[report.total_batches] = float(report.metrics["avg_metrics"]["loss"])
        self._losses = tuple(sorted(newest.items()))
        for report in self._api.trials.metrics([trial_id], "validation"):
            self._accuracy = float(report.metrics["validation_metrics"]["accuracy"])
