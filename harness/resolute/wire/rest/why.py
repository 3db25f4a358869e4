"""Why a job is where it is, and what would start it. An extension of the contract.

GET /api/v1/jobs/{jobId}/explain     ExplainJobResponse; for `jobId` the number of an experiment will do
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingWork:
    """Something that runs, or is leaving, where the job could start."""

    allocation_id: str
    job_id: str
    slots: int = 0
    agent_ids: tuple[str, ...] = ()
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingAgent:
    """An agent that takes no work, and why."""

    agent_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlockers:
    """Without all of these the job would start at once.

    Long lists are cut; the counts are not. `ahead` waits before it: with `ahead_together` only all of it is in the way, not each.
    `max_slots` is the job's own cap, where that is in the way. `smallest`: it was tried that none of them can be left out.
    """

    running: tuple[BlockingWork, ...] = ()
    running_count: int = 0
    ahead: tuple[str, ...] = ()
    ahead_count: int = 0
    ahead_together: bool = False
    max_slots: int | None = None
    agents: tuple[BlockingAgent, ...] = ()
    blocked_agents: tuple[str, ...] = ()
    smallest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWhatIf:
    """One change with which the job would start: at once, or when `after` has saved and ended.

    `change` is one of priority, ahead_of, weight, pool, slots, single_node, max_slots, agent, agent_slots, agents, blocked_agents,
    more_agents or a later addition; `value` is the new value, `now` the current one. `text` is a sentence about it.
    """

    change: str
    value: str = ""
    now: str = ""
    text: str = ""
    agent_ids: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """The expected start of a waiting job: `expected_at` is as likely too early as too late, `earliest` to `latest` holds it with
    90 %; without `latest` it may take longer than the simulation, and without `expected_at` there is no estimate. `basis` is the
    basis of the estimate, or why there is none. Work that is submitted later is not included."""

    expected_at: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStart:
    """The expected start of that allocation of a job which is expected to start first."""

    job_id: str
    allocation_id: str
    start: JobStart


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPoolStartsQuery:
    """`job_ids`: of these alone; empty: of all."""

    job_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPoolStartsResponse:
    """When the jobs of a pool that wait will start, by job id, as foreseen at `computed_at`; what came into the queue since then is
    not among them, where a newer answer takes longer than a second. `computed_at` None: the first answer for this pool is still
    being computed. In both cases, ask again in a few seconds."""

    starts: tuple[PoolStart, ...]
    computed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWork:
    """The experiment that a job or an allocation belongs to, by the id that was used for it."""

    id: str
    experiment_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJobResponse:
    """Why a job is where it is: one sentence, then the details behind it.

    It explains the decision on the state after the engine's cycle `cycle`, and was computed for the time `at`. The rest is empty
    unless an allocation of the job waits: it is about the allocation `allocation_id`, the job's first. `first_ahead` are the
    first of the `jobs_ahead` jobs that come before it. `blockers` None: nothing that could go is in its way, or it was not found.
    `what_if` are the changes that would start it. `gave_up` says what was not found out within `passes` passes of the scheduler.
    `named` are the experiments of the jobs and allocations whose ids occur in the rest.
    """

    job_id: str
    state: str
    reason: str
    details: tuple[str, ...] = ()
    pool: str = ""
    cycle: int = 0
    at: datetime | None = None
    allocation_id: str = ""
    jobs_ahead: int = 0
    first_ahead: tuple[str, ...] = ()
    blockers: JobBlockers | None = None
    what_if: tuple[JobWhatIf, ...] = ()
    passes: int = 0
    gave_up: tuple[str, ...] = ()
    named: tuple[NamedWork, ...] = ()
    start: JobStart | None = None
    """None where nothing of the job waits."""
