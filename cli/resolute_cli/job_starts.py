"""When the jobs of a list will start, for its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from resolute.client.errors import MasterUnreachable
from resolute.client.queue import Queue
from resolute.client.session import NO_RETRY
from resolute.errors import NotFound, ResoluteError
from resolute.wire.rest.enums import JobState
from resolute.wire.rest.jobs import Job, LimitedJob
from resolute.wire.rest.why import GetPoolStartsResponse, JobStart
from resolute_cli.job_explain import SHARE
from resolute_cli.render import time_text

COLUMNS = ("Expected Start", f"Likely Range ({SHARE})")
NAMED = 100
"""Maximum number of job ids in one address; beyond it all jobs of the pool are requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """By pool: the answer, or the message of a failure."""

    answers: dict[str, GetPoolStartsResponse] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def by_job(self) -> dict[str, JobStart]:
        return {each.job_id: each.start for answer in self.answers.values() for each in answer.starts}

    def cells(self, jobs: Sequence[Job | LimitedJob | None]) -> list[tuple[str, str]]:
        """`COLUMNS`: the expected start of each and its range; both empty for what does not wait, and where no answer was had."""
        starts = self.by_job()
        return [
            ("", "")
            if job is None or job.resource_pool not in self.answers or not _waits(job)
            else start_cells(starts.get(job.job_id))
            for job in jobs
        ]


def pool_starts(queue: Queue, jobs: Sequence[Job | LimitedJob | None], *, needed: bool) -> Starts:
    """For the pools in which some of `jobs` wait. A master that foresees nothing is taken to have no answer.

    `needed`: a failure is raised. Else every pool is asked once, and none after one at which the master did not answer at all:
    what decorates a list must not hold it up.
    """
    waiting: dict[str, list[str]] = {}
    for job in jobs:
        if job is not None and _waits(job):
            waiting.setdefault(job.resource_pool, []).append(job.job_id)
    found = Starts()
    for pool, ids in waiting.items():
        try:
            asked = ids if len(ids) <= NAMED else ()
            found.answers[pool] = queue.starts(pool, *asked, retry=None if needed else NO_RETRY)
        except NotFound:
            continue
        except ResoluteError as error:
            if needed:
                raise
            found.failures[pool] = str(error)
            if isinstance(error, MasterUnreachable):
                break
    return found


def _waits(job: Job | LimitedJob) -> bool:
    return job.summary is not None and job.summary.state is JobState.QUEUED


def failure_note(pool: str, failure: str) -> str:
    return f"The expected starts in pool {pool} are missing: {failure}. The list is complete otherwise."


def starts_note(pool: str, answer: GetPoolStartsResponse) -> str:
    if answer.computed_at is None:
        return f"The starts in pool {pool} are being estimated for the first time: try again in a few seconds."
    return f"Starts in pool {pool} as estimated at {time_text(answer.computed_at)}; det job explain shows their basis."


def start_cells(start: JobStart | None) -> tuple[str, str]:
    """The two cells of a waiting job. `start` is None for a job that was submitted after the estimate was made."""
    if start is None:
        return "no estimate yet", "try again in a few seconds"
    if start.expected_at is None:
        return "unknown", start.basis
    latest = "later" if start.latest is None else time_text(start.latest)
    return time_text(start.expected_at), f"{time_text(start.earliest)} to {latest}"
