"""The port between the rules and their storage.

Two kinds of data, two paths. *State* (experiments, trials, allocations, ...) is written by the engine alone, one
`commit` a cycle. *Streams* (metrics, logs, step marks) are appended by their batched writers and paged by readers.
Every method is one transaction. A method that raises has stored nothing.

Ordering: every listing is sorted by what its docstring says, id last, so that pages do not overlap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from resolute.errors import InvalidInput, ResoluteError
from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, Decision, Entity, JournalEntry, Stored
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ExperimentId, InstanceId, JobId, PoolName, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark, StepReport
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.store.metric_chunks import Chunk
from resolute_master.store.result_ranges import Ranges
from resolute_master.store.search_filter import SearchQuery

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """`total` counts all rows of the query; `offset` is where `rows` begin (never negative)."""

    rows: tuple[Row, ...]
    offset: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentQuery:
    """`offset` < 0 counts from the end and is clamped; `limit` None is everything, 0 is none (counts only).

    `name` and `description` are case-insensitive substrings; the collections are alternatives; empty ones do not
    filter. Rows without the value that is sorted by come last in either direction.
    """

    offset: int = 0
    limit: int | None = 100
    archived: bool | None = None
    states: tuple[ExperimentState, ...] = ()
    owners: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    name: str = ""
    description: str = ""
    project_id: int | None = None
    not_in_workspace: int | None = None
    """Those of any other workspace."""
    ids: tuple[int, ...] = ()
    exclude_ids: tuple[int, ...] = ()
    sort_by: str = "id"
    """One of `listing.EXPERIMENT_SORTS`; anything else is `InvalidInput`."""
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialQuery:
    """Trials of one experiment."""

    experiment_id: ExperimentId
    offset: int = 0
    limit: int | None = None
    states: tuple[ExperimentState, ...] = ()
    sort_by: str = "id"
    """One of `listing.TRIAL_SORTS`; anything else is `InvalidInput`."""
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointQuery:
    """Checkpoints of an experiment or of a trial; DELETED ones only when asked for by state. `most` limits them to those of the
    most steps."""

    experiment_id: ExperimentId | None = None
    trial_id: TrialId | None = None
    trial_ids: tuple[TrialId, ...] | None = None
    """Checkpoints of any of these trials."""
    states: tuple[CheckpointState, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """Reports of some groups of a trial that count, by step, run and group, or the reverse. Those without a step count are not
    among them. The steps include both ends."""

    trial: TrialId
    groups: tuple[str, ...]
    first_step: int | None = None
    last_step: int | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Lines of some tasks in the order in which they were stored (`id`).

    `after_id` continues a follow; `limit` None is everything. `levels` etc. are alternatives. Rank -1 means lines
    without a rank. `before` includes its moment, `after` does not. `text` is a case-insensitive
    substring, or with `regex` a regular expression that RE2 takes.
    """

    task_ids: tuple[TaskId, ...]
    after_id: int = 0
    limit: int | None = None
    descending: bool = False
    allocation_ids: tuple[str, ...] = ()
    agent_ids: tuple[str, ...] = ()
    container_ids: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    stdtypes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    before: datetime | None = None
    after: datetime | None = None
    text: str = ""
    regex: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFields:
    """Values of some lines, each once and in order; `last_id` is the number of the last of these lines. Rank -1 means none."""

    agent_ids: tuple[str, ...] = ()
    allocation_ids: tuple[str, ...] = ()
    container_ids: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    stdtypes: tuple[str, ...] = ()
    last_id: int = 0

    @property
    def some(self) -> bool:
        """Whether there is any value."""
        return any(getattr(self, name) for name in LOG_FIELDS)

    def without(self, known: LogFields) -> LogFields:
        """Those that are not among the known ones."""
        return LogFields(
            last_id=self.last_id,
            **{name: tuple(v for v in getattr(self, name) if v not in getattr(known, name)) for name in LOG_FIELDS},
        )

    def joined(self, more: LogFields) -> LogFields:
        """Both together."""
        return LogFields(
            last_id=max(self.last_id, more.last_id),
            **{name: tuple(sorted({*getattr(self, name), *getattr(more, name)})) for name in LOG_FIELDS},
        )


LOG_FIELDS = ("agent_ids", "allocation_ids", "container_ids", "ranks", "sources", "stdtypes")


class MetricOutcome(StrEnum):
    """What became of one report."""

    STORED = "stored"
    MERGED = "merged"
    """The key existed; new names were added."""
    REPEATED = "repeated"
    """The key existed with the same values: nothing changed."""
    CONFLICT = "conflict"
    """The key existed with another value for the same name: nothing was stored of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole engine state after the cycle `sequence`, to replay a journal from."""

    sequence: int
    digest: str
    body: bytes


class StoreBroken(ResoluteError):
    """The store cannot be used as it is; the text names it and has a remedy."""


class Unstorable(InvalidInput):
    """What was to be stored holds a value that the store cannot keep. Nothing of it is stored, and the store continues.

    Every other error of a write says that the store itself has failed, or may have.
    """


MAX_REASON_LENGTH = 300
"""Characters of a driver's reason that are repeated: some repeat the value."""

VALUE_ERRORS = (ArithmeticError, TypeError, ValueError)
"""What encoders and drivers raise for a value that has no form there, before anything is written."""


@contextmanager
def keeping_values() -> Iterator[None]:
    """What makes rows of values, within a write that then stores nothing, raises `Unstorable`."""
    try:
        yield
    except VALUE_ERRORS as error:
        raise unstorable(error) from error


def unstorable(error: BaseException) -> Unstorable:
    """In words; of a long value its beginning."""
    return Unstorable(f"a value cannot be stored: {str(error)[:MAX_REASON_LENGTH] or type(error).__name__}")


class Store(Protocol):
    """Durable cluster state. Every method is one transaction. Every write may raise `Unstorable`."""

    # -- state -------------------------------------------------------------------------------------------------

    async def load(self) -> Stored:
        """Everything the engine needs to continue, read at boot.

        Experiments that are not deleted (`ExperimentState.gone`), or are being deleted, with their jobs, trials, checkpoints
        and searches; allocations that have not ended; instances that are not over; all agents, and all of
        `ALWAYS_LOADED`; the whole outbox; the last journal sequence and digest (0 and "" in an
        empty store).
        """
        ...

    async def commit(self, change: Change) -> None:
        """Store it all or nothing.

        Raises `Conflict` when `change.journal.sequence` is not exactly one more than the last one stored: then another
        master has written, and this one must stop.

        With a deleted trial go its metrics and its task's log lines, with a deleted allocation its step marks. What is
        both stored and deleted in one change is deleted; an effect both removed and added is there afterwards.
        """
        ...

    async def experiment_entities(self, id_: ExperimentId) -> tuple[Entity, ...]:
        """The experiment with its job, trials, checkpoints and search; empty when unknown. For the engine to take it up."""
        ...

    async def search_rows(self, id_: ExperimentId) -> tuple[SearchTrial, ...]:
        """What the experiment's search keeps of its trials, in the order in which they were made."""
        ...

    async def save_snapshot(self, snapshot: Snapshot, *, retain: int) -> None:
        """Keep it, and the `retain` newest before it; forget older ones and the journal before the oldest kept.

        Raises `Conflict` when it is of a change that is not stored.
        """
        ...

    async def snapshots(self) -> tuple[Snapshot, ...]:
        """Oldest first."""
        ...

    def journal(self, after: int) -> AsyncIterator[JournalEntry]:
        """Entries with a sequence greater than `after`, in order."""
        ...

    # -- streams -----------------------------------------------------------------------------------------------

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        """Store a batch in order, one outcome a report; batches in the order of the calls.

        A report of a newer run archives the rows of older runs of that trial with a larger step count in any group, or
        an equal or larger one in the same group (all groups but training and validation count as one here). Reports
        without a step count and those of system groups neither archive nor are archived.
        """
        ...

    async def append_logs(self, records: Sequence[LogRecord]) -> None:
        """Store a batch, batches in the order of the calls; records whose key exists are left out."""
        ...

    async def remove_logs(self, tasks: Sequence[TaskId]) -> int:
        """Forget all lines of these tasks; how many there were."""
        ...

    async def append_step_marks(self, marks: Sequence[StepMark]) -> None:
        """Keyed by (allocation, time): repeats are left out."""
        ...

    # -- reads -------------------------------------------------------------------------------------------------

    async def experiment(self, id_: ExperimentId) -> Experiment | None: ...

    async def page_experiments(self, query: ExperimentQuery) -> Page[Experiment]: ...

    async def experiment_numbers(self, ids: Sequence[ExperimentId]) -> dict[ExperimentId, ExperimentNumbers]:
        """Sums over trials and checkpoints, for listings."""
        ...

    async def project_numbers(self, ids: Sequence[int]) -> dict[int, ProjectNumbers]:
        """What the experiments of each of these projects come to, also of those without any."""
        ...

    async def trial(self, id_: TrialId) -> Trial | None: ...

    async def page_trials(self, query: TrialQuery) -> Page[Trial]: ...

    async def search_experiments(self, query: SearchQuery) -> Page[Experiment]:
        """What fits its filter, in its order, then by id. Metrics are those of the best trial; a hyperparameter is any trial's."""
        ...

    async def search_trials(self, query: SearchQuery) -> Page[Trial]:
        """The same of trials, each with its own."""
        ...

    async def trials(self, ids: Sequence[int]) -> tuple[Trial, ...]:
        """Those that are known, by id."""
        ...

    async def experiments(self, ids: Sequence[int]) -> tuple[Experiment, ...]:
        """Those that are known, by id."""
        ...

    async def hyperparameter_names(self, project_id: int | None) -> Mapping[str, bool]:
        """The names of the hyperparameters of all trials of a project, or of all trials, each with whether all of its values
        are numbers."""
        ...

    async def metric_names(self, project_id: int | None) -> tuple[tuple[str, str, str], ...]:
        """Group, name and type of what trials of a project, or all, have reported; each once, in order."""
        ...

    async def result_ranges(self, project_id: int) -> Ranges:
        """The smallest and the largest value of the best trials of a project's experiments, by column of the search
        (`searcherMetricsVal`, `GROUP.METRIC.min`); columns without a number are left out."""
        ...

    async def run_metadata(self, project_id: int, key: str) -> tuple[Mapping[str, Any], ...]:
        """The metadata of the runs of a project that have a value under this key."""
        ...

    async def labels(self, project_id: int | None) -> tuple[str, ...]:
        """The labels of all experiments of a project, or of all experiments; each once, the most frequent first."""
        ...

    async def checkpoint(self, uuid: str) -> Checkpoint | None: ...

    async def checkpoints(self, query: CheckpointQuery) -> tuple[Checkpoint, ...]:
        """By trial id, then steps, then uuid."""
        ...

    async def allocation(self, id_: AllocationId) -> Allocation | None: ...

    async def allocations_of_task(self, task: TaskId) -> tuple[Allocation, ...]:
        """All attempts, the first one first."""
        ...

    async def attempts_of_tasks(self, tasks: Sequence[TaskId]) -> tuple[Allocation, ...]:
        """All attempts at these tasks, by id."""
        ...

    async def allocations_on_agents(
        self, agents: Sequence[str], *, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[Allocation, ...]:
        """Attempts, ended or not, that have or had a container on one of these agents; by assignment time.

        With `since` not those that had ended by then, with `until` not those that had no slots before it.
        """
        ...

    async def ended_allocations(self, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
        """The newest `limit` of the pool that had slots or places and have ended, the newest end first."""
        ...

    async def instance(self, id_: InstanceId) -> Instance | None:
        """One, also when it is over."""
        ...

    async def instances(self, *, since: datetime | None = None, until: datetime | None = None) -> tuple[Instance, ...]:
        """All, also those that are over, by request time.

        With `since` not those whose bill had ended by then (or that are over and never had one), with `until` not those
        that were not asked for before it.
        """
        ...

    async def jobs(self, ids: Sequence[JobId]) -> tuple[Job, ...]:
        """Those that are known, ended or not, by id. A job stays known when its experiment is deleted."""
        ...

    async def decisions(self, limit: int) -> tuple[Decision, ...]:
        """The newest `limit`, oldest of them first."""
        ...

    async def metrics(
        self, trial: TrialId, group: str | None = None, *, include_archived: bool = False
    ) -> tuple[MetricReport, ...]:
        """By step count, then run, then group; `group` None is every group but the system metrics."""
        ...

    def metric_pages(
        self, trial: TrialId, group: str, *, include_archived: bool = False
    ) -> AsyncIterator[tuple[MetricReport, ...]]:
        """The same of one group, a thousand at a time; each page is a transaction of its own."""
        ...

    async def ordered_metrics(self, query: MetricQuery) -> tuple[MetricReport, ...]: ...

    async def metrics_at(self, trial: TrialId, group: str, steps: Collection[int]) -> tuple[MetricReport, ...]:
        """Those of the group that count and have one of these step counts, ordered as `metrics`."""
        ...

    async def metrics_between(
        self, trials: Sequence[TrialId], group: str, *, first_step: int, last_step: int
    ) -> tuple[MetricReport, ...]:
        """Reports of these trials in a short range of steps, that count; by trial, then step."""
        ...

    async def metric_chunks(
        self,
        trials: Sequence[TrialId],
        groups: Sequence[str] = (),
        *,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> dict[tuple[int, str], tuple[Chunk, ...]]:
        """What the reports that count come to: by trial and group consecutive chunks of them, of which each that reaches
        into the range of steps. Without `groups` of all but the system's."""
        ...

    async def outer_reports(self, runs: Collection[tuple[TrialId, int]]) -> tuple[StepReport, ...]:
        """The reports of each of these runs (trial and run number) with the smallest and with the largest step count, archived or
        not, in any group but the system metrics; the earlier of several at the same step. By trial, run and step.

        There are at most two per run, and one if the run has reported one step only.
        """
        ...

    async def log_fields(self, task: TaskId, *, after_id: int = 0) -> LogFields:
        """The fields of the task's lines with a larger number."""
        ...

    async def logs(self, query: LogQuery) -> tuple[LogRecord, ...]: ...

    async def step_marks(self, allocations: Sequence[AllocationId]) -> tuple[StepMark, ...]:
        """By allocation, then time."""
        ...

    async def relevant_marks(self, steps: Mapping[AllocationId, int]) -> tuple[StepMark, ...]:
        """The first and the last mark of each allocation, and the two marks around the given number of steps; by allocation, then
        time. At most four per allocation, for any run time."""
        ...

    # -- contexts and settings ---------------------------------------------------------------------------------

    async def put_context(self, digest: str, archive: bytes) -> None:
        """Keep an uploaded archive under its sha256; again is a no-op."""
        ...

    async def get_context(self, digest: str) -> bytes | None: ...

    async def remove_unused_contexts(self) -> int:
        """Forget the archives that no stored experiment names; how many."""
        ...

    async def setting(self, name: str) -> Any | None:
        """A JSON value the master keeps for itself (cluster id, signing key)."""
        ...

    async def put_setting(self, name: str, value: Any) -> None: ...

    async def forget_replaced(self) -> None:
        """Leave no copy of replaced settings in the database's own files, as far as the database allows it."""
        ...

    async def ping(self) -> None:
        """Raise when the store cannot answer."""
        ...

    async def watch(self) -> None:
        """Raises when another master or an operator has taken the store from this master, also without calls; otherwise it
        never returns."""
        ...

    def away_s(self) -> float:
        """Seconds since it could last be used, while it waits for an unavailable database; 0 otherwise."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentNumbers:
    """Sums of one experiment over its trials and its checkpoints that are not DELETED."""

    trials: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectNumbers:
    """Sums over the experiments of a project."""

    experiments: int = 0
    active: int = 0
    """Those that are not over."""
    trials: int = 0
    last_started_at: datetime | None = None
