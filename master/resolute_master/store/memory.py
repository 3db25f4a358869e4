"""The store without a disk: for the simulator and for tests, by the same contract.

Values are kept as the bytes that a database would hold and are decoded for each reader, so that nothing is shared
with the caller by accident. No threads and no waiting: it runs on any event loop, also one with virtual time.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from resolute.errors import Conflict, FailedPrecondition
from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import (
    ALWAYS_LOADED,
    KINDS,
    Change,
    Decision,
    Entity,
    EntityKey,
    JournalEntry,
    Stored,
    key_of,
)
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ExperimentId, InstanceId, JobId, PoolName, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark, StepReport
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.store import listing
from resolute_master.store.base import (
    CheckpointQuery,
    ExperimentNumbers,
    ExperimentQuery,
    LogFields,
    LogQuery,
    MetricOutcome,
    MetricQuery,
    Page,
    ProjectNumbers,
    Snapshot,
    TrialQuery,
    keeping_values,
)
from resolute_master.store.encoding import (
    decode,
    decode_effect,
    decode_entity,
    decode_plain,
    encode,
    encode_effect,
    kind_of,
    with_bodies,
)
from resolute_master.store.log_lines import fields_of
from resolute_master.store.memory_search import MemorySearch
from resolute_master.store.memory_streams import METRIC_PAGE, LogTable, MetricTable
from resolute_master.store.metric_chunks import Chunk

Row = TypeVar("Row")
SortValue = int | float | str | datetime | None


class CommitHook(Protocol):
    """Called before and after every commit. The caller of `commit` gets what it raises.

    Raised by `before_commit`: nothing is stored. Raised by `after_commit`: everything is stored and the answer lost.
    """

    def before_commit(self, change: Change) -> None: ...

    def after_commit(self, change: Change) -> None: ...


@dataclass(slots=True)
class MemoryTables:
    """What would be on disk: it outlives the store object, so that a new one can be opened on it."""

    entities: dict[str, dict[EntityKey, bytes]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    outbox: dict[str, bytes] = field(default_factory=dict)
    journal: dict[int, JournalEntry] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    agents_of: dict[AllocationId, set[str]] = field(default_factory=lambda: defaultdict(set))
    metrics: MetricTable = field(default_factory=MetricTable)
    logs: LogTable = field(default_factory=LogTable)
    step_marks: dict[tuple[AllocationId, datetime], StepMark] = field(default_factory=dict)
    contexts: dict[str, bytes] = field(default_factory=dict)
    settings: dict[str, bytes] = field(default_factory=dict)

    @property
    def last_sequence(self) -> int:
        return next(reversed(self.journal), 0)


class MemoryStore(MemorySearch):
    """A `Store`. `MemoryStore(older.tables)` opens the same data again, as after a restart."""

    def __init__(self, tables: MemoryTables | None = None, *, hook: CommitHook | None = None) -> None:
        self.tables = MemoryTables() if tables is None else tables
        self._hook = hook
        self._closed = False

    @property
    def _open(self) -> MemoryTables:
        if self._closed:
            raise FailedPrecondition("the store is closed; open it again before using it")
        return self.tables

    # -- state -------------------------------------------------------------------------------------------------

    async def load(self) -> Stored:
        tables = self._open
        experiments = {e.id: e for e in self._all(Experiment) if _engine_holds(e)}
        jobs = [
            job
            for job in self._all(Job)
            if (not job.ended if job.experiment_id is None else job.experiment_id in experiments)
        ]
        entities: list[Entity] = [
            *experiments.values(),
            *(trial for trial in self._all(Trial) if trial.experiment_id in experiments),
            *jobs,
            *(allocation for allocation in self._all(Allocation) if not allocation.ended),
            *self._all_of("agent"),
            *(instance for instance in self._all(Instance) if not instance.over),
            *(checkpoint for checkpoint in self._all(Checkpoint) if checkpoint.experiment_id in experiments),
            *(search for search in self._all(Search) if search.id in experiments),
            *(row for row in self._all(SearchTrial) if row.search in experiments),
        ]
        for kind in ALWAYS_LOADED:
            entities.extend(self._all_of(kind))
        sequence = tables.last_sequence
        return Stored(
            sequence=sequence,
            digest=tables.journal[sequence].digest if sequence else "",
            entities=tuple(entities),
            outbox=tuple(decode_effect(body) for body in tables.outbox.values()),
        )

    async def commit(self, change: Change) -> None:
        tables = self._open
        if self._hook is not None:
            self._hook.before_commit(change)
        last = tables.last_sequence
        if change.journal.sequence != last + 1:
            raise Conflict(listing.sequence_conflict(change.journal.sequence, last))
        # Everything that can fail comes before the first assignment: all or nothing.
        with keeping_values():
            upserts = [(kind_of(entity), key_of(entity), body) for entity, body in with_bodies(change)]
            added = {effect.key: encode_effect(effect) for effect in change.outbox_added}
        if unknown := sorted({kind for kind, _ in change.deletes} - KINDS.keys()):
            raise KeyError(f"there is no kind of entity named {unknown[0]}")

        for kind, key, body in upserts:
            tables.entities[kind][key] = body
        for entity in change.upserts:
            if isinstance(entity, Allocation) and entity.containers:
                tables.agents_of[entity.id].update(container.agent for container in entity.containers)
        for kind, key in change.deletes:
            self._forget_streams(kind, key)
            tables.entities[kind].pop(key, None)
        for key in change.outbox_removed:
            tables.outbox.pop(key, None)
        for key, body in added.items():
            tables.outbox.setdefault(key, body)
        tables.logs.append(change.logs)
        tables.decisions.extend(listing.storable(change.decisions))
        tables.journal[change.journal.sequence] = change.journal
        if self._hook is not None:
            self._hook.after_commit(change)

    def _forget_streams(self, kind: str, key: EntityKey) -> None:
        tables = self._open
        if kind == "trial" and (trial := self._one(Trial, key)) is not None:
            tables.metrics.forget(trial.id)
            tables.logs.forget(trial.task_id)
        elif kind == "allocation":
            tables.agents_of.pop(AllocationId(str(key)), None)
            for marked in [marked for marked in tables.step_marks if marked[0] == key]:
                del tables.step_marks[marked]

    async def experiment_entities(self, id_: ExperimentId) -> tuple[Entity, ...]:
        experiment = await self.experiment(id_)
        if experiment is None:
            return ()
        return (
            experiment,
            *(trial for trial in self._all(Trial) if trial.experiment_id == id_),
            *(job for job in self._all(Job) if job.experiment_id == id_),
            *(checkpoint for checkpoint in self._all(Checkpoint) if checkpoint.experiment_id == id_),
            *(search for search in self._all(Search) if search.id == id_),
            *(row for row in self._all(SearchTrial) if row.search == id_),
        )

    async def search_rows(self, id_: ExperimentId) -> tuple[SearchTrial, ...]:
        found = [row for row in self._all(SearchTrial) if row.search == id_]
        return tuple(sorted(found, key=lambda row: row.number))

    async def save_snapshot(self, snapshot: Snapshot, *, retain: int) -> None:
        tables = self._open
        last = tables.last_sequence
        if snapshot.sequence > last:
            raise Conflict(listing.snapshot_conflict(snapshot.sequence, last))
        tables.snapshots[snapshot.sequence] = snapshot
        kept = sorted(tables.snapshots)[-(max(retain, 0) + 1) :]
        tables.snapshots = {sequence: tables.snapshots[sequence] for sequence in kept}
        for sequence in [sequence for sequence in tables.journal if sequence < kept[0]]:
            del tables.journal[sequence]

    async def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(snapshot for _, snapshot in sorted(self._open.snapshots.items()))

    async def journal(self, after: int) -> AsyncIterator[JournalEntry]:
        for _, entry in sorted(self._open.journal.items()):
            if entry.sequence > after:
                yield entry

    # -- streams -----------------------------------------------------------------------------------------------

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        return self._open.metrics.append(reports)

    async def append_logs(self, records: Sequence[LogRecord]) -> None:
        self._open.logs.append(records)

    async def remove_logs(self, tasks: Sequence[TaskId]) -> int:
        return sum(self._open.logs.forget(task) for task in tasks)

    async def append_step_marks(self, marks: Sequence[StepMark]) -> None:
        tables = self._open
        for mark in marks:
            tables.step_marks.setdefault((mark.allocation_id, mark.at), mark)

    # -- reads -------------------------------------------------------------------------------------------------

    async def experiment(self, id_: ExperimentId) -> Experiment | None:
        return self._one(Experiment, id_)

    async def page_experiments(self, query: ExperimentQuery) -> Page[Experiment]:
        listing.check_sort(query.sort_by, listing.EXPERIMENT_SORTS)
        found = [experiment for experiment in self._all(Experiment) if _experiment_matches(experiment, query)]
        numbers = await self.experiment_numbers([experiment.id for experiment in found])
        pools = {job.experiment_id: job.pool for job in self._all(Job)}
        columns: dict[str, Callable[[Experiment], SortValue]] = {
            "id": lambda e: e.id,
            "name": lambda e: e.name,
            "description": lambda e: e.description,
            "start_time": lambda e: e.started_at,
            "end_time": lambda e: e.ended_at,
            "state": lambda e: list(ExperimentState).index(e.state),
            "progress": lambda e: e.progress,
            "user": lambda e: e.owner,
            "num_trials": lambda e: numbers[e.id].trials,
            "resource_pool": lambda e: pools.get(e.id),
            "project_id": lambda e: e.project_id,
            "workspace_id": lambda e: e.workspace_id,
            "forked_from": lambda e: e.parent_id,
            "checkpoint_count": lambda e: numbers[e.id].checkpoints,
            "checkpoint_size": lambda e: numbers[e.id].checkpoint_bytes,
            "searcher_metric_val": lambda e: e.best_validation,
        }
        return _page(_sorted(found, columns[query.sort_by], query.descending), query.offset, query.limit)

    async def experiment_numbers(self, ids: Sequence[ExperimentId]) -> dict[ExperimentId, ExperimentNumbers]:
        numbers = {id_: ExperimentNumbers() for id_ in ids}
        for trial in self._all(Trial):
            if (sums := numbers.get(trial.experiment_id)) is not None:
                numbers[trial.experiment_id] = replace(sums, trials=sums.trials + 1)
        for checkpoint in self._all(Checkpoint):
            sums = numbers.get(checkpoint.experiment_id)
            if sums is not None and checkpoint.state is not CheckpointState.DELETED:
                numbers[checkpoint.experiment_id] = replace(
                    sums, checkpoints=sums.checkpoints + 1, checkpoint_bytes=sums.checkpoint_bytes + checkpoint.size
                )
        return numbers

    async def project_numbers(self, ids: Sequence[int]) -> dict[int, ProjectNumbers]:
        found: dict[int, ProjectNumbers] = {}
        for id_ in ids:
            own = {each.id: each for each in self._all(Experiment) if each.project_id == id_}
            found[id_] = ProjectNumbers(
                experiments=len(own),
                active=sum(not each.state.gone for each in own.values()),
                trials=sum(trial.experiment_id in own for trial in self._all(Trial)),
                last_started_at=max((each.started_at for each in own.values()), default=None),
            )
        return found

    async def trial(self, id_: TrialId) -> Trial | None:
        return self._one(Trial, id_)

    async def page_trials(self, query: TrialQuery) -> Page[Trial]:
        listing.check_sort(query.sort_by, listing.TRIAL_SORTS)
        found = [
            trial
            for trial in self._all(Trial)
            if trial.experiment_id == query.experiment_id and (not query.states or trial.state in query.states)
        ]
        sizes: dict[TrialId, int] = defaultdict(int)
        for checkpoint in await self.checkpoints(CheckpointQuery(experiment_id=query.experiment_id)):
            sizes[checkpoint.trial_id] += checkpoint.size
        columns: dict[str, Callable[[Trial], SortValue]] = {
            "id": lambda t: t.id,
            "start_time": lambda t: t.started_at,
            "end_time": lambda t: t.ended_at,
            "state": lambda t: list(ExperimentState).index(t.state),
            "best_validation_metric": lambda t: t.best_validation.metric if t.best_validation else None,
            "latest_validation_metric": lambda t: t.latest_validation.metric if t.latest_validation else None,
            "batches_processed": lambda t: t.steps_completed,
            "duration": lambda t: (t.ended_at - t.started_at).total_seconds() if t.ended_at else None,
            "restarts": lambda t: t.restarts,
            "checkpoint_size": lambda t: sizes[t.id],
        }
        return _page(_sorted(found, columns[query.sort_by], query.descending), query.offset, query.limit)

    async def checkpoint(self, uuid: str) -> Checkpoint | None:
        return self._one(Checkpoint, uuid)

    async def checkpoints(self, query: CheckpointQuery) -> tuple[Checkpoint, ...]:
        found = [
            checkpoint
            for checkpoint in self._all(Checkpoint)
            if (query.experiment_id is None or checkpoint.experiment_id == query.experiment_id)
            and (query.trial_id is None or checkpoint.trial_id == query.trial_id)
            and (query.trial_ids is None or checkpoint.trial_id in query.trial_ids)
            and (checkpoint.state in query.states if query.states else checkpoint.state is not CheckpointState.DELETED)
        ]
        found = sorted(found, key=lambda c: (-c.steps_completed, c.trial_id, c.uuid))[: query.most]
        return tuple(sorted(found, key=lambda c: (c.trial_id, c.steps_completed, c.uuid)))

    async def allocation(self, id_: AllocationId) -> Allocation | None:
        return self._one(Allocation, id_)

    async def allocations_of_task(self, task: TaskId) -> tuple[Allocation, ...]:
        found = (allocation for allocation in self._all(Allocation) if allocation.task_id == task)
        return tuple(sorted(found, key=lambda a: (listing.attempt_number(a.id), a.id)))

    async def attempts_of_tasks(self, tasks: Sequence[TaskId]) -> tuple[Allocation, ...]:
        wanted = set(tasks)
        found = (allocation for allocation in self._all(Allocation) if allocation.task_id in wanted)
        return tuple(sorted(found, key=lambda a: a.id))

    async def allocations_on_agents(
        self, agents: Sequence[str], *, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[Allocation, ...]:
        wanted = set(agents)
        held = {id_ for id_, names in self._open.agents_of.items() if names & wanted}
        found = [
            allocation
            for allocation in self._all(Allocation)
            if allocation.id in held
            and (since is None or allocation.ended_at is None or allocation.ended_at > since)
            and (until is None or (allocation.assigned_at is not None and allocation.assigned_at < until))
        ]
        return tuple(_sorted(found, lambda a: a.assigned_at, descending=False))

    async def ended_allocations(self, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
        of_pool = [a for a in self._all(Allocation) if a.pool == pool]
        over = [a for a in of_pool if a.ended and a.assigned_at is not None and a.ended_at is not None]
        return tuple(_sorted(over, lambda a: a.ended_at, descending=True)[:limit])

    async def instance(self, id_: InstanceId) -> Instance | None:
        return self._one(Instance, id_)

    async def instances(self, *, since: datetime | None = None, until: datetime | None = None) -> tuple[Instance, ...]:
        found = (
            instance
            for instance in self._all(Instance)
            if (since is None or (not instance.over if instance.paid_until is None else instance.paid_until > since))
            and (until is None or instance.requested_at < until)
        )
        return tuple(sorted(found, key=lambda i: (i.requested_at, i.id)))

    async def jobs(self, ids: Sequence[JobId]) -> tuple[Job, ...]:
        wanted = set(ids)
        return tuple(sorted((job for job in self._all(Job) if job.id in wanted), key=lambda job: job.id))

    async def decisions(self, limit: int) -> tuple[Decision, ...]:
        return tuple(self._open.decisions[-limit:]) if limit > 0 else ()

    async def metrics(
        self, trial: TrialId, group: str | None = None, *, include_archived: bool = False
    ) -> tuple[MetricReport, ...]:
        return self._open.metrics.select(trial, group, include_archived=include_archived)

    def _chunks_of(self, trial: int) -> Mapping[tuple[int, str], tuple[Chunk, ...]]:
        return self._open.metrics.chunks(TrialId(trial))

    async def metric_pages(
        self, trial: TrialId, group: str, *, include_archived: bool = False
    ) -> AsyncIterator[tuple[MetricReport, ...]]:
        found = await self.metrics(trial, group, include_archived=include_archived)
        for first in range(0, len(found), METRIC_PAGE):
            yield found[first : first + METRIC_PAGE]

    async def ordered_metrics(self, query: MetricQuery) -> tuple[MetricReport, ...]:
        return self._open.metrics.ordered(query)

    async def metrics_at(self, trial: TrialId, group: str, steps: Collection[int]) -> tuple[MetricReport, ...]:
        found = self._open.metrics.select(trial, group, include_archived=False)
        return tuple(report for report in found if report.steps_completed in steps)

    async def metrics_between(
        self, trials: Sequence[TrialId], group: str, *, first_step: int, last_step: int
    ) -> tuple[MetricReport, ...]:
        queries = (
            MetricQuery(trial=t, groups=(group,), first_step=first_step, last_step=last_step, limit=sys.maxsize)
            for t in sorted(set(trials))
        )
        return tuple(report for query in queries for report in self._open.metrics.ordered(query))

    async def metric_chunks(
        self,
        trials: Sequence[TrialId],
        groups: Sequence[str] = (),
        *,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> dict[tuple[int, str], tuple[Chunk, ...]]:
        found: dict[tuple[int, str], tuple[Chunk, ...]] = {}
        for key, chunks in (item for trial in trials for item in self._open.metrics.chunks(trial).items()):
            reaching = tuple(
                chunk
                for chunk in chunks
                if (first_step is None or chunk.last_step >= first_step)
                and (last_step is None or chunk.first_step <= last_step)
            )
            if reaching and (not groups or key[1] in groups):
                found[key] = reaching
        return found

    async def outer_reports(self, runs: Collection[tuple[TrialId, int]]) -> tuple[StepReport, ...]:
        return tuple(report for trial, run in sorted(set(runs)) for report in self._open.metrics.outer(trial, run))

    async def log_fields(self, task: TaskId, *, after_id: int = 0) -> LogFields:
        return fields_of(
            (
                line.agent_id,
                line.allocation_id,
                line.container_id,
                -1 if line.rank is None else line.rank,
                line.source,
                line.stdtype,
                line.id,
            )
            for line in self._open.logs.select(LogQuery(task_ids=(task,), after_id=after_id))
        )

    async def logs(self, query: LogQuery) -> tuple[LogRecord, ...]:
        return self._open.logs.select(query)

    async def step_marks(self, allocations: Sequence[AllocationId]) -> tuple[StepMark, ...]:
        wanted = set(allocations)
        return tuple(mark for key, mark in sorted(self._open.step_marks.items()) if key[0] in wanted)

    async def relevant_marks(self, steps: Mapping[AllocationId, int]) -> tuple[StepMark, ...]:
        marks: dict[AllocationId, list[StepMark]] = defaultdict(list)
        for mark in await self.step_marks(tuple(steps)):
            marks[mark.allocation_id].append(mark)
        return tuple(mark for id_, own in marks.items() for mark in _telling(own, steps[id_]))

    # -- contexts and settings ---------------------------------------------------------------------------------

    async def put_context(self, digest: str, archive: bytes) -> None:
        self._open.contexts.setdefault(digest, bytes(archive))

    async def get_context(self, digest: str) -> bytes | None:
        return self._open.contexts.get(digest)

    async def remove_unused_contexts(self) -> int:
        used = {entity.context_hash for entity in self._all_of("experiment") if isinstance(entity, Experiment)}
        unused = self._open.contexts.keys() - used
        for digest in unused:
            del self._open.contexts[digest]
        return len(unused)

    async def setting(self, name: str) -> Any | None:
        body = self._open.settings.get(name)
        return None if body is None else decode_plain(body)

    async def put_setting(self, name: str, value: Any) -> None:
        self._open.settings[name] = encode(value)

    async def forget_replaced(self) -> None:
        """A replaced value is gone."""
        _ = self._open

    async def ping(self) -> None:
        _ = self._open

    async def watch(self) -> None:
        await asyncio.Event().wait()

    def away_s(self) -> float:
        return 0.0

    async def close(self) -> None:
        self._closed = True

    # -- entities ----------------------------------------------------------------------------------------------

    def _one(self, type_: type[Row], key: EntityKey) -> Row | None:
        body = self._open.entities[_KIND_NAMES[type_]].get(key)
        return None if body is None else decode(type_, body)

    def _all(self, type_: type[Row]) -> list[Row]:
        """By key."""
        return [decode(type_, body) for _, body in _by_key(self._open.entities[_KIND_NAMES[type_]])]

    def _all_of(self, kind: str) -> Iterable[Entity]:
        return [decode_entity(kind, body) for _, body in _by_key(self._open.entities[kind])]


_KIND_NAMES: dict[type, str] = {type_: kind for kind, type_ in KINDS.items()}


def _engine_holds(experiment: Experiment) -> bool:
    return not experiment.state.gone or experiment.state is ExperimentState.DELETING


def _experiment_matches(experiment: Experiment, query: ExperimentQuery) -> bool:
    return (
        (query.archived is None or experiment.archived == query.archived)
        and (not query.states or experiment.state in query.states)
        and (not query.owners or experiment.owner in query.owners)
        and (not query.labels or not set(query.labels).isdisjoint(experiment.labels))
        and query.name.lower() in experiment.name.lower()
        and query.description.lower() in experiment.description.lower()
        and (query.project_id is None or experiment.project_id == query.project_id)
        and experiment.workspace_id != query.not_in_workspace
        and (not query.ids or experiment.id in query.ids)
        and experiment.id not in query.exclude_ids
    )


def _by_key(table: dict[EntityKey, bytes]) -> list[tuple[EntityKey, bytes]]:
    # The keys of one table are all numbers or all text; the type of the table cannot say so.
    return sorted(table.items(), key=lambda item: item[0])


def _sorted(rows: list[Row], column: Callable[[Row], SortValue], descending: bool) -> list[Row]:
    """`rows` come by id; sorting is stable in both directions, so ties stay so. Rows without the value are last."""
    missing = [row for row in rows if _absent(column(row))]
    present = [row for row in rows if not _absent(column(row))]
    present.sort(key=column, reverse=descending)  # type: ignore[arg-type]
    return [*present, *missing]


def _absent(value: SortValue) -> bool:
    return value is None or value != value  # NaN is the value that differs from itself


def _page(rows: list[Row], offset: int, limit: int | None) -> Page[Row]:
    first, after = listing.page_bounds(offset, limit, len(rows))
    return Page(rows=tuple(rows[first:after]), offset=first, total=len(rows))


def _telling(marks: Sequence[StepMark], steps: int) -> list[StepMark]:
    """The marks of one allocation, by time, that show when `steps` were completed: the first, the last, and those around the
    step."""
    below = [mark for mark in marks if mark.steps_completed < steps]
    reached = [mark for mark in marks if mark.steps_completed >= steps]
    found = {mark.at: mark for mark in (marks[0], *below[-1:], *reached[:1], marks[-1])}
    return [found[at] for at in sorted(found)]
