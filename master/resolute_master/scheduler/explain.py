"""Why a job is where it is: what it waits for, what is ahead of it, what blocks it, and what would start it.

Computed on request, never in the pass that decides, and from the same snapshot by the same scheduler. The effort is bounded by a
number of passes; an answer that ran out of them states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, JobId, PoolName
from resolute_master.scheduler.blockers import Blockers, find_blockers
from resolute_master.scheduler.job_states import JobOrder, JobState, Walk
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.reasons import NAMES_SHOWN, Reasons
from resolute_master.scheduler.rehearsal import (
    PASSES,
    Decides,
    PassesSpent,
    Rehearsal,
    Start,
    hold_of,
    result_in,
    start_in,
)
from resolute_master.scheduler.schedule import run
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.what_if import WhatIfs, what_if

_FOR_BLOCKERS = 1 / 2
"""Share of the passes; the others, and unused ones of these, are for `what_if`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`reason` is one sentence, `details` are the facts behind it. The rest is empty unless the job has a pending allocation.

    `waiting` is the allocation that this is about: the job's first. `start` is how it starts without a change, if it does.
    `blockers` None: nothing that runs or waits blocks it. `gave_up` is what was not determined for lack of passes.
    """

    state: JobState
    reason: str
    details: tuple[str, ...] = ()
    waiting: AllocationId | None = None
    start: Start | None = None
    jobs_ahead: int = 0
    first_ahead: tuple[JobId, ...] = ()
    blockers: Blockers | None = None
    what_if: WhatIfs | None = None
    passes: int = 0
    gave_up: tuple[str, ...] = ()


def explain(
    snapshot: PoolSnapshot,
    job: JobId,
    others: Mapping[PoolName, PoolSnapshot] | None = None,
    *,
    passes: int = PASSES,
    decides: Decides = run,
    order: JobOrder | None = None,
) -> Explanation:
    """What the job waits for, or where it runs. `others` are the pools that it could be moved to, `decides` is the decision of each
    pool; `order` is the order of the snapshot's jobs, if already computed."""
    order = order or JobOrder(snapshot)
    standing = order.standing(job)
    if standing is None:
        return Explanation(state=JobState.IDLE, reason="This job neither waits nor runs in this pool.")
    waiting, running = _work_of(snapshot, job)
    if not waiting:
        first, *more = [_runs(a) for a in running]
        return Explanation(state=standing.state, reason=first, details=tuple(more[:NAMES_SHOWN]))
    first_ahead = tuple(order.jobs[: min(standing.jobs_ahead, NAMES_SHOWN)])
    told = _Waiting(snapshot, waiting, running, others or {}, passes, decides)
    return replace(told.explained(standing.state, standing.jobs_ahead), first_ahead=first_ahead)


def reasons_of(
    snapshot: PoolSnapshot, jobs: Iterable[JobId], *, walk: Walk = iter, decides: Decides = run
) -> dict[JobId, str]:
    """For jobs with a pending allocation: the `reason` of `explain`. Two passes in total, whatever the number of jobs."""
    first = {job: waiting[0] for job in walk(jobs) if (waiting := _work_of(snapshot, job)[0])}
    if not first:
        return {}
    decision = Rehearsal(2, decides)
    reasons = Reasons(snapshot, decision.run(snapshot), decision)
    return {job: reasons.reason(allocation) for job, allocation in walk(first.items())}


def _work_of(snapshot: PoolSnapshot, job: JobId) -> tuple[list[Allocation], list[Allocation]]:
    """The pending and the other allocations of a job, each in the order of the queue."""
    mine = sorted((snapshot.allocations[a] for a in snapshot.job_allocations.get(job) or ()), key=snapshot.queue_key)
    return [a for a in mine if waits(a)], [a for a in mine if not waits(a)]


class _Waiting:
    """The answer for a job with a pending allocation."""

    def __init__(
        self,
        snapshot: PoolSnapshot,
        waiting: list[Allocation],
        running: list[Allocation],
        others: Mapping[PoolName, PoolSnapshot],
        passes: int,
        decides: Decides,
    ) -> None:
        self._snapshot = snapshot
        self._mine = waiting[0]
        self._mates = len(waiting)
        self._running = running
        self._others = others
        self._passes = max(passes, 2)
        """One for the decision itself, one for the decision without protection times."""
        self._decides = decides
        self._gave_up: list[str] = []

    def explained(self, state: JobState, ahead: int) -> Explanation:
        snapshot, mine = self._snapshot, self._mine
        decision = Rehearsal(2, self._decides)
        outcome = decision.run(snapshot)
        start = start_in(snapshot, outcome, mine.id)
        reasons = Reasons(snapshot, outcome, decision)
        reason = reasons.reason(mine)
        details = [_queue(ahead), *reasons.facts(mine)]
        if self._mates > 1:
            details.append(f"{self._mates} allocations of the job wait; this is about the first, {mine.id}.")
        details.extend(_runs(a) for a in self._running[:NAMES_SHOWN])
        blockers, found, spent = None, None, decision.made
        if start is None or start.after:
            search = Rehearsal(int((self._passes - spent) * _FOR_BLOCKERS), self._decides)
            blockers = self._blockers(search, outcome)
            rest = Rehearsal(self._passes - spent - search.made, self._decides)
            found = what_if(snapshot, mine, start, rest, self._others)
            spent += search.made + rest.made
            if not found.complete:
                self._gave_up.append(
                    f"not every change that could start it was tried: the limit is {self._passes} passes"
                )
        return Explanation(
            state=state,
            reason=reason,
            details=tuple(details),
            waiting=mine.id,
            start=start,
            jobs_ahead=ahead,
            blockers=blockers,
            what_if=found,
            passes=spent,
            gave_up=tuple(self._gave_up),
        )

    def _blockers(self, search: Rehearsal, outcome: Outcome) -> Blockers | None:
        hold = hold_of(outcome, self._mine.id)
        kept = () if hold is None else tuple(agent for agent, _ in hold.agents)
        capped = result_in(self._snapshot, outcome, self._mine) is PlacementResult.CAPPED
        if self._snapshot.held or (capped and self._snapshot.jobs[self._mine.job_id].hold):
            return None
        try:
            found = find_blockers(self._snapshot, self._mine.id, search, capped=capped, kept=kept)
        except PassesSpent:
            self._gave_up.append(f"what blocks it was not determined: the limit is {search.limit} passes")
            return None
        if found is not None and not found.smallest:
            self._gave_up.append("the blockers may include unnecessary ones: not every subset was tried")
        return found


def _queue(ahead: int) -> str:
    return f"{ahead} job(s) of the pool are before it." if ahead else "It is the first job of the pool."


def _runs(allocation: Allocation) -> str:
    places = [
        f"{c.agent} (slots {', '.join(map(str, c.slots))})" if c.slots else c.agent
        for c in sorted(allocation.containers, key=lambda c: c.rank)
        if not c.ended
    ]
    if allocation.preempt is not None:
        return f"{allocation.id} was preempted: {allocation.preempt.reason}."
    return f"{allocation.id} {'is ending' if allocation.leaving else 'runs'} on {', '.join(places) or 'no agent'}."
