"""The history of a pool as a trace of jobs, from the recorded attempts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId, TaskId
from resolute_master.domain.job import Job
from resolute_master.forecast.trace_job import TraceJob

HISTORY_DAYS = 30
"""Days of history that are simulated for advice: what is older says little of the work to come."""
MOST_ATTEMPTS = 2_000
"""Attempts of a pool's history that are simulated for advice, the newest: more would take too long."""
TOGETHER_S = 60.0
"""An attempt that was requested so soon after the end of the last one continues with its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`jobs` in the order of submission; their times count from `begin`. `days` is from there to now."""

    begin: datetime
    days: float
    jobs: tuple[TraceJob, ...]


def history(attempts: Sequence[Allocation], jobs: Mapping[JobId, Job], now: datetime, *, whole: bool) -> History:
    """`attempts` had slots, and have ended or run now. Not `whole`: others have ended before them.

    What ran before the beginning is left out, and what still runs counts with the time that it has run. Work that an attempt had
    not saved when the cluster took its slots away was done again, and counts once.
    """
    known = [
        each for each in attempts if each.slots_needed > 0 and each.assigned_at is not None and each.job_id in jobs
    ]
    begin = max([now - timedelta(days=HISTORY_DAYS), *_first(known, whole=whole)])
    found = [
        job
        for task, of_task in _by_task(known).items()
        for number, piece in enumerate(_pieces(of_task), start=1)
        if (job := _job(task if number == 1 else f"{task}#{number}", piece, jobs, begin, now)) is not None
    ]
    return History(
        begin=begin,
        days=(now - begin).total_seconds() / 86_400.0,
        jobs=tuple(sorted(found, key=lambda job: (job.submit_s, job.job_id))),
    )


def _first(attempts: Sequence[Allocation], *, whole: bool) -> list[datetime]:
    """Time from which the history is complete; empty if nothing has run."""
    if whole:
        return [min(each.requested_at for each in attempts)] if attempts else []
    ended = [each.ended_at for each in attempts if each.ended_at is not None]
    return [min(ended)] if ended else []


def _by_task(attempts: Iterable[Allocation]) -> Mapping[TaskId, list[Allocation]]:
    found: dict[TaskId, list[Allocation]] = defaultdict(list)
    for each in sorted(attempts, key=lambda each: (each.requested_at, each.id)):
        found[each.task_id].append(each)
    return found


def _pieces(attempts: Sequence[Allocation]) -> Iterator[list[Allocation]]:
    piece: list[Allocation] = []
    for each in attempts:
        last = piece[-1].ended_at if piece else None
        if piece and (last is None or (each.requested_at - last).total_seconds() > TOGETHER_S):
            yield piece
            piece = []
        piece.append(each)
    if piece:
        yield piece


def _job(
    job_id: str, piece: Sequence[Allocation], jobs: Mapping[JobId, Job], begin: datetime, now: datetime
) -> TraceJob | None:
    """A job of the trace; None if it had no slots since the beginning, or did no work that was kept."""
    last = piece[-1]
    ran_s = sum(_kept_s(each, begin, now, goes_on=each is not last) for each in piece)
    if ran_s <= 0.0:
        return None
    job, submit_s = jobs[last.job_id], max(0.0, (piece[0].requested_at - begin).total_seconds())
    deadline_s = None if last.deadline is None else (last.deadline - begin).total_seconds()
    return TraceJob(
        job_id=job_id,
        submit_s=submit_s,
        duration_s=ran_s,
        slots=last.slots_needed,
        group=str(job.owner),
        priority=job.priority,
        weight=job.weight,
        max_slots=job.max_slots,
        single_node=last.single_node,
        preemptible=last.preemptible,
        deadline_s=deadline_s if deadline_s is not None and deadline_s > submit_s else None,
        workspace=str(job.workspace_id),
    )


def _kept_s(attempt: Allocation, begin: datetime, now: datetime, *, goes_on: bool) -> float:
    """Seconds of kept work on its slots since `begin`. `goes_on`: another attempt repeated what this one had not saved."""
    assert attempt.assigned_at is not None
    end = attempt.ended_at or now
    if goes_on and _cut(attempt):
        end = min(end, attempt.wasted_since)
    return max(0.0, (end - max(begin, attempt.assigned_at)).total_seconds())


def _cut(attempt: Allocation) -> bool:
    """Whether the cluster took its slots away. A program that failed by itself would also fail on other machines."""
    failure = None if attempt.exit is None else attempt.exit.failure
    return attempt.preempt is not None or (failure is not None and not failure.counts_as_restart)
