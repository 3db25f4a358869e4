"""When the jobs of a list will start, for its columns."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.client.queue import Queue
from resolute.errors import NotFound
from resolute.wire.rest.enums import JobState
from resolute.wire.rest.jobs import Job, LimitedJob
from resolute.wire.rest.why import GetPoolStartsResponse, JobStart
from resolute_cli.render import time_text

NAMED = 100
"""Of more jobs than that all of their pool are asked for: an address has room for so many."""


def pool_starts(queue: Queue, jobs: Sequence[Job | LimitedJob | None]) -> dict[str, GetPoolStartsResponse]:
    """The answers for the pools in which some of `jobs` wait. A master that foresees nothing is taken to have no answer."""
    waiting: dict[str, list[str]] = {}
    for job in jobs:
        if job is not None and job.summary is not None and job.summary.state is JobState.QUEUED:
            waiting.setdefault(job.resource_pool, []).append(job.job_id)
    try:
        return {pool: queue.starts(pool, *(ids if len(ids) <= NAMED else ())) for pool, ids in waiting.items()}
    except NotFound:
        return {}


def starts_note(pool: str, answer: GetPoolStartsResponse) -> str:
    if answer.computed_at is None:
        return f"When the jobs of pool {pool} start is being foreseen for the first time: ask again in a few seconds."
    return (
        f"Starts in pool {pool} as foreseen at {time_text(answer.computed_at)}; det job explain says what they rest on."
    )


def start_cells(start: JobStart | None) -> tuple[str, str]:
    """The expected start, and its range; empty for what does not wait."""
    if start is None:
        return "", ""
    if start.expected_at is None:
        return "unknown", start.basis
    latest = "later" if start.latest is None else time_text(start.latest)
    return time_text(start.expected_at), f"{time_text(start.earliest)} to {latest}"
