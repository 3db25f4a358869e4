"""The port on a database: each method is one piece of work, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, delete, make_url, select
from sqlalchemy.exc import ArgumentError

from resolute.errors import InvalidInput
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
from resolute_master.event_loop import yielding
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
)
from resolute_master.store.encoding import decode_plain, encode
from resolute_master.store.metric_chunks import Chunk, names_in
from resolute_master.store.result_ranges import Ranges, ranges_of
from resolute_master.store.search_filter import SearchQuery
from resolute_master.store.search_filter import Table as SearchTable
from resolute_master.store.sql import changes, chunk_rows, dialect, metric_reads, queries, searches, streams, tables
from resolute_master.store.sql.database import Database, SqliteDatabase

FEW = 50
"""More rows than this are decoded in a thread of their own: each takes some ten microseconds."""


class SqlStore:
    """A `Store` on a `Database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, url: str) -> SqlStore:
        """`sqlite:///relative/path`, `sqlite:////absolute/path`, also spelled `sqlite+aiosqlite:`.

        Creates the database or upgrades its tables. Raises `InvalidInput` for another kind of URL, and what
        `SqliteDatabase.open` raises.
        """
        return cls(await SqliteDatabase.open(_sqlite_path(url)))

    # -- state -------------------------------------------------------------------------------------------------

    async def load(self) -> Stored:
        return await self._database.read(changes.load)

    async def commit(self, change: Change) -> None:
        await self._database.write(lambda connection: changes.commit(connection, change))

    async def experiment_entities(self, id_: ExperimentId) -> tuple[Entity, ...]:
        return await self._database.read(lambda connection: changes.experiment_entities(connection, id_))

    async def search_rows(self, id_: ExperimentId) -> tuple[SearchTrial, ...]:
        return await self._database.read(lambda connection: queries.search_rows(connection, id_))

    async def save_snapshot(self, snapshot: Snapshot, *, retain: int) -> None:
        await self._database.write(lambda connection: changes.save_snapshot(connection, snapshot, retain))

    async def snapshots(self) -> tuple[Snapshot, ...]:
        return await self._database.read(changes.snapshots)

    async def journal(self, after: int) -> AsyncIterator[JournalEntry]:
        while page := await self._journal_page(after):
            for entry in page:
                yield entry
            after = page[-1].sequence

    async def _journal_page(self, after: int) -> list[JournalEntry]:
        return await self._database.read(lambda connection: changes.journal_page(connection, after))

    # -- streams -----------------------------------------------------------------------------------------------

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        return await self._database.write(lambda connection: streams.append_metrics(connection, reports))

    async def append_logs(self, records: Sequence[LogRecord]) -> None:
        await self._database.write(lambda connection: streams.insert_logs(connection, records))

    async def remove_logs(self, tasks: Sequence[TaskId]) -> int:
        return await self._database.write(lambda connection: streams.remove_logs(connection, tasks))

    async def append_step_marks(self, marks: Sequence[StepMark]) -> None:
        await self._database.write(lambda connection: streams.append_step_marks(connection, marks))

    # -- reads -------------------------------------------------------------------------------------------------

    async def experiment(self, id_: ExperimentId) -> Experiment | None:
        return await self._database.read(lambda connection: queries.one(connection, Experiment, id_))

    async def page_experiments(self, query: ExperimentQuery) -> Page[Experiment]:
        found = await self._database.read(lambda connection: queries.page_experiments(connection, query))
        return await _decoded(Experiment, found)

    async def experiment_numbers(self, ids: Sequence[ExperimentId]) -> dict[ExperimentId, ExperimentNumbers]:
        return await self._database.read(lambda connection: queries.experiment_numbers(connection, ids))

    async def project_numbers(self, ids: Sequence[int]) -> dict[int, ProjectNumbers]:
        return await self._database.read(lambda connection: queries.project_numbers(connection, ids))

    async def trial(self, id_: TrialId) -> Trial | None:
        return await self._database.read(lambda connection: queries.one(connection, Trial, id_))

    async def page_trials(self, query: TrialQuery) -> Page[Trial]:
        found = await self._database.read(lambda connection: queries.page_trials(connection, query))
        return await _decoded(Trial, found)

    async def search_experiments(self, query: SearchQuery) -> Page[Experiment]:
        found = await self._database.read(lambda c: searches.page_search(c, query, SearchTable.EXPERIMENTS))
        return await _decoded(Experiment, found)

    async def search_trials(self, query: SearchQuery) -> Page[Trial]:
        found = await self._database.read(lambda c: searches.page_search(c, query, SearchTable.RUNS))
        return await _decoded(Trial, found)

    async def trials(self, ids: Sequence[int]) -> tuple[Trial, ...]:
        bodies = await self._database.read(lambda connection: searches.bodies_by_id(connection, "trial", ids))
        return (await _decoded(Trial, Page(rows=tuple(bodies), offset=0, total=len(bodies)))).rows

    async def experiments(self, ids: Sequence[int]) -> tuple[Experiment, ...]:
        bodies = await self._database.read(lambda connection: searches.bodies_by_id(connection, "experiment", ids))
        return (await _decoded(Experiment, Page(rows=tuple(bodies), offset=0, total=len(bodies)))).rows

    async def hyperparameter_names(self, project_id: int | None) -> Mapping[str, bool]:
        return await self._database.read(lambda connection: searches.hyperparameter_names(connection, project_id))

    async def metric_names(self, project_id: int | None) -> tuple[tuple[str, str, str], ...]:
        bodies = await self._database.read(lambda connection: searches.metric_bodies(connection, project_id))
        return await asyncio.to_thread(names_in, yielding(bodies))

    async def result_ranges(self, project_id: int) -> Ranges:
        rows, metric = await self._database.read(lambda connection: searches.best_results(connection, project_id))
        return await asyncio.to_thread(ranges_of, yielding(rows), metric)

    async def run_metadata(self, project_id: int, key: str) -> tuple[Mapping[str, Any], ...]:
        texts = await self._database.read(lambda connection: searches.metadata_texts(connection, project_id, key))
        return await asyncio.to_thread(lambda: tuple(decode_plain(text) for text in yielding(texts)))

    async def labels(self, project_id: int | None) -> tuple[str, ...]:
        return await self._database.read(lambda connection: searches.labels(connection, project_id))

    async def checkpoint(self, uuid: str) -> Checkpoint | None:
        return await self._database.read(lambda connection: queries.one(connection, Checkpoint, uuid))

    async def checkpoints(self, query: CheckpointQuery) -> tuple[Checkpoint, ...]:
        return await self._database.read(lambda connection: queries.checkpoints(connection, query))

    async def allocation(self, id_: AllocationId) -> Allocation | None:
        return await self._database.read(lambda connection: queries.one(connection, Allocation, id_))

    async def allocations_of_task(self, task: TaskId) -> tuple[Allocation, ...]:
        return await self._database.read(lambda connection: queries.allocations_of_task(connection, task))

    async def attempts_of_tasks(self, tasks: Sequence[TaskId]) -> tuple[Allocation, ...]:
        return await self._database.read(lambda connection: queries.attempts_of_tasks(connection, tasks))

    async def allocations_on_agents(
        self, agents: Sequence[str], *, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[Allocation, ...]:
        return await self._database.read(
            lambda connection: queries.allocations_on_agents(connection, agents, since=since, until=until)
        )

    async def ended_allocations(self, pool: PoolName, limit: int) -> tuple[Allocation, ...]:
        return await self._database.read(lambda connection: queries.ended_allocations(connection, pool, limit))

    async def instance(self, id_: InstanceId) -> Instance | None:
        return await self._database.read(lambda connection: queries.one(connection, Instance, id_))

    async def instances(self, *, since: datetime | None = None, until: datetime | None = None) -> tuple[Instance, ...]:
        return await self._database.read(lambda connection: queries.instances(connection, since=since, until=until))

    async def jobs(self, ids: Sequence[JobId]) -> tuple[Job, ...]:
        return await self._database.read(lambda connection: queries.jobs(connection, ids))

    async def decisions(self, limit: int) -> tuple[Decision, ...]:
        return await self._database.read(lambda connection: queries.decisions(connection, limit))

    async def metrics(
        self, trial: TrialId, group: str | None = None, *, include_archived: bool = False
    ) -> tuple[MetricReport, ...]:
        return await self._database.read(
            lambda connection: metric_reads.metrics(connection, trial, group, include_archived=include_archived)
        )

    async def metric_pages(
        self, trial: TrialId, group: str, *, include_archived: bool = False
    ) -> AsyncIterator[tuple[MetricReport, ...]]:
        after: metric_reads.Place | None = None
        while True:
            page, after = await self._metric_page(trial, group, after, include_archived)
            if not page:
                return
            yield page

    async def _metric_page(
        self, trial: TrialId, group: str, after: metric_reads.Place | None, include_archived: bool
    ) -> tuple[tuple[MetricReport, ...], metric_reads.Place | None]:
        return await self._database.read(
            lambda connection: metric_reads.page(connection, trial, group, after, include_archived=include_archived)
        )

    async def ordered_metrics(self, query: MetricQuery) -> tuple[MetricReport, ...]:
        return await self._database.read(lambda connection: metric_reads.ordered(connection, query))

    async def metrics_at(self, trial: TrialId, group: str, steps: Collection[int]) -> tuple[MetricReport, ...]:
        return await self._database.read(lambda connection: metric_reads.at_steps(connection, trial, group, steps))

    async def metrics_between(
        self, trials: Sequence[TrialId], group: str, *, first_step: int, last_step: int
    ) -> tuple[MetricReport, ...]:
        return await self._database.read(
            lambda connection: metric_reads.between(connection, trials, group, first_step, last_step)
        )

    async def metric_chunks(
        self,
        trials: Sequence[TrialId],
        groups: Sequence[str] = (),
        *,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> dict[tuple[int, str], tuple[Chunk, ...]]:
        return await self._database.read(
            lambda connection: chunk_rows.of_trials(connection, trials, groups, first=first_step, last=last_step)
        )

    async def log_fields(self, task: TaskId, *, after_id: int = 0) -> LogFields:
        return await self._database.read(lambda connection: streams.log_fields(connection, task, after_id))

    async def logs(self, query: LogQuery) -> tuple[LogRecord, ...]:
        return await self._database.read(lambda connection: streams.logs(connection, query))

    async def outer_reports(self, runs: Collection[tuple[TrialId, int]]) -> tuple[StepReport, ...]:
        return await self._database.read(lambda connection: streams.outer_reports(connection, runs))

    async def step_marks(self, allocations: Sequence[AllocationId]) -> tuple[StepMark, ...]:
        return await self._database.read(lambda connection: streams.step_marks(connection, allocations))

    async def relevant_marks(self, steps: Mapping[AllocationId, int]) -> tuple[StepMark, ...]:
        return await self._database.read(lambda connection: streams.relevant_marks(connection, steps))

    # -- contexts and settings ---------------------------------------------------------------------------------

    async def put_context(self, digest: str, archive: bytes) -> None:
        def work(connection: Connection) -> None:
            row = {"digest": digest, "archive": archive}
            connection.execute(dialect.insert_new(connection, tables.contexts, "digest"), [row])

        await self._database.write(work)

    async def get_context(self, digest: str) -> bytes | None:
        statement = select(tables.contexts.c.archive).where(tables.contexts.c.digest == digest)
        return await self._database.read(lambda connection: connection.execute(statement).scalar_one_or_none())

    async def remove_unused_contexts(self) -> int:
        def work(connection: Connection) -> int:
            named = dialect.json_text_at(connection, tables.experiments.c.body, ("context_hash",))
            if not connection.execute(select(tables.contexts.c.digest).limit(1)).first():
                return 0
            used = tables.contexts.c.digest.in_(select(named))
            return connection.execute(delete(tables.contexts).where(~used)).rowcount

        return await self._database.write(work)

    async def setting(self, name: str) -> Any | None:
        statement = select(tables.settings.c.value).where(tables.settings.c.name == name)
        body = await self._database.read(lambda connection: connection.execute(statement).scalar_one_or_none())
        return None if body is None else decode_plain(body)

    async def put_setting(self, name: str, value: Any) -> None:
        row = {"name": name, "value": encode(value).decode()}
        await self._database.write(
            lambda connection: connection.execute(dialect.upsert(connection, tables.settings), [row])
        )

    async def forget_replaced(self) -> None:
        await self._database.forget_replaced()

    async def ping(self) -> None:
        await self._database.ping()

    async def watch(self) -> None:
        await self._database.watch()

    def away_s(self) -> float:
        return 0.0

    async def close(self) -> None:
        await self._database.close()


async def _decoded(type_: type[queries.Noun], page: Page[queries.Body]) -> Page[queries.Noun]:
    if len(page.rows) <= FEW:
        return queries.decoded(type_, page)
    return await asyncio.to_thread(queries.decoded, type_, page)


def sqlite_url(path: Path) -> str:
    """The URL of a file, whatever characters its path is made of."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def _sqlite_path(url: str) -> Path:
    advice = "write sqlite:///<path of a file>"
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput(f"db: '{url}' is not the URL of a database; {advice}") from None
    if parsed.get_backend_name() != "sqlite":
        # The text of the URL stays out of the error: it may hold a password.
        raise InvalidInput(f"db: databases of type '{parsed.drivername}' are not supported by this version; {advice}")
    if not parsed.database or parsed.database == ":memory:":
        raise InvalidInput(f"db: '{url}' names no file, so that no state would be kept; {advice}")
    return Path(parsed.database)
