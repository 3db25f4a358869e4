"""The steps of each attempt, kept or lost, read from the store for the ledger. Does not depend on their form on the wire."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark, StepReport
from resolute_master.lifecycle import ledger as books
from resolute_master.store.base import Store

NOT_YET = 2**62
"""More steps than any run has: for a run in progress, which may keep all its steps."""


async def runs_on(
    store: Store, instances: Sequence[Instance], *, since: datetime | None = None, until: datetime | None = None
) -> tuple[books.Run, ...]:
    """Attempts that ran on these machines, between the given times, with their kept and lost steps.

    This reads all attempts of those tasks, because the next attempt shows the step at which it resumed, and at most four marks
    or two reports of each attempt, however long it ran."""
    agents = sorted({i.agent_id for i in instances if i.agent_id is not None})
    found = await store.allocations_on_agents(agents, since=since, until=until)
    attempts = await store.attempts_of_tasks(sorted({a.task_id for a in found}))
    return await _runs(store, attempts, {a.id for a in found})


async def runs_of(store: Store, tasks: Sequence[TaskId]) -> tuple[books.Run, ...]:
    """Every attempt at these tasks, with its kept and lost steps."""
    attempts = await store.attempts_of_tasks(tasks)
    return await _runs(store, attempts, {a.id for a in attempts})


async def _runs(
    store: Store, attempts: Sequence[Allocation], wanted: Collection[AllocationId]
) -> tuple[books.Run, ...]:
    kept = books.kept_steps(attempts, await _saved_steps(store, attempts))
    asked = [a for a in attempts if a.id in wanted]
    return books.runs(asked, await marks_of(store, asked, kept), kept)


async def marks_of(
    store: Store, allocations: Sequence[Allocation], kept: Mapping[AllocationId, int]
) -> tuple[StepMark, ...]:
    """The marks of these attempts, by which their time is booked. For an attempt without marks its first and last report are
    used; the last report of an attempt that ended without a notice may contain later steps than its marks."""
    marks = list(await store.relevant_marks({a.id: kept.get(a.id, NOT_YET) for a in allocations}))
    own: dict[AllocationId, list[StepMark]] = {}
    for mark in marks:
        own.setdefault(mark.allocation_id, []).append(mark)
    told: dict[tuple[TrialId, int], list[StepReport]] = {}
    silent = [(a, (a.trial_id, a.run_id)) for a in allocations if a.trial_id is not None and _may_report_more(a, own)]
    for report in await store.outer_reports({run for _, run in silent}):
        told.setdefault((report.trial_id, report.run_id), []).append(report)
    for attempt, run in silent:
        marks += books.marks_of_reports(attempt, own.get(attempt.id, ()), told.get(run, ()), kept.get(attempt.id))
    return tuple(marks)


def _may_report_more(attempt: Allocation, own: Collection[AllocationId]) -> bool:
    """Whether the reports of an attempt may contain steps that no mark has."""
    failed = attempt.exit is not None and attempt.exit.failure is not None
    return attempt.assigned_at is not None and (failed or attempt.id not in own)


async def _saved_steps(store: Store, attempts: Sequence[Allocation]) -> dict[TrialId, int]:
    """Steps in the latest checkpoint of each trial whose last attempt ended before the trial was complete; 0 without a
    checkpoint."""
    steps: dict[TrialId, int] = {}
    for id_ in books.unfinished(attempts):
        trial = await store.trial(id_)
        if trial is not None:
            steps[id_] = trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0
    return steps
