"""An explanation as a wire message, for the API and for snapshot files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from resolute.wire.rest.why import BlockingAgent, BlockingWork, ExplainJobResponse, JobBlockers, JobWhatIf, NamedWork
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.scheduler.blockers import Blockers
from resolute_master.scheduler.explain import Explanation
from resolute_master.scheduler.reasons import why_closed
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.what_if import WhatIf

SHOWN = 100
"""Longer lists are cut; the message has their lengths."""


def explain_message(snapshot: PoolSnapshot, job: JobId, found: Explanation, *, cycle: int) -> ExplainJobResponse:
    """`cycle` is the engine's cycle that left the snapshot; 0 for one that comes from no engine."""
    waiting = None if found.waiting is None else snapshot.allocations[found.waiting]
    answer = ExplainJobResponse(
        job_id=job,
        state=str(found.state),
        reason=found.reason,
        details=found.details,
        pool=snapshot.policy.name,
        cycle=cycle,
        at=snapshot.now,
        allocation_id=found.waiting or "",
        jobs_ahead=found.jobs_ahead,
        first_ahead=found.first_ahead,
        blockers=_blockers(snapshot, waiting, found.blockers) if waiting and found.blockers else None,
        what_if=tuple(map(_what_if, found.what_if.found)) if found.what_if is not None else (),
        passes=found.passes,
        gave_up=found.gave_up,
    )
    return replace(answer, named=tuple(_named(snapshot, answer)))


_WORD = re.compile(r"[\w.-]*\w")


def _named(snapshot: PoolSnapshot, answer: ExplainJobResponse) -> Iterator[NamedWork]:
    """The experiment of each id in the answer, also within a sentence."""
    for word in sorted(set(_WORD.findall(msgspec.json.encode(answer).decode()))):
        allocation = snapshot.allocations.get(AllocationId(word))
        job = snapshot.jobs.get(JobId(word) if allocation is None else allocation.job_id)
        if job is not None and job.experiment_id is not None:
            yield NamedWork(id=word, experiment_id=job.experiment_id, name=job.name)


def _blockers(snapshot: PoolSnapshot, waiting: Allocation, found: Blockers) -> JobBlockers:
    job = snapshot.jobs.get(waiting.job_id)
    return JobBlockers(
        running=tuple(_work(snapshot.allocations[id_]) for id_ in found.running[:SHOWN]),
        running_count=len(found.running),
        ahead=found.ahead[:SHOWN],
        ahead_count=len(found.ahead),
        ahead_together=found.ahead_together,
        max_slots=job.max_slots if found.cap and job is not None else None,
        agents=tuple(BlockingAgent(agent_id=id_, reason=why_closed(snapshot.agents[id_])) for id_ in found.agents),
        blocked_agents=waiting.blocked_agents if found.blocked else (),
        smallest=found.smallest,
    )


def _work(allocation: Allocation) -> BlockingWork:
    return BlockingWork(
        allocation_id=allocation.id,
        job_id=allocation.job_id,
        slots=len(allocation.held_slots),
        agent_ids=tuple(dict.fromkeys(c.agent for c in allocation.containers if not c.ended)),
        leaving=allocation.leaving,
    )


def _what_if(found: WhatIf) -> JobWhatIf:
    return JobWhatIf(
        change=found.change.value,
        value=found.value,
        now=found.now,
        text=found.words,
        agent_ids=found.start.agents[:SHOWN],
        after=found.start.after[:SHOWN],
        after_count=len(found.start.after),
    )
