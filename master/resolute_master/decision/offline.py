"""A decision about a snapshot file, without a master: the plan, and the reasons of the allocations that still wait.

The entry point of `det job schedule`: it needs the scheduler and the configuration library, and no server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from resolute.errors import NotFound
from resolute.wire.rest.why import ExplainJobResponse
from resolute_master.decision.plan_pool import plan_pool
from resolute_master.decision.rehearsing import deciding
from resolute_master.decision.view import PoolView
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.scheduler import snapshot_edit
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.explain_message import explain_message
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.reasons import Reasons, names
from resolute_master.scheduler.rehearsal import Rehearsal
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.snapshot_edit import edited
from resolute_master.scheduler.snapshot_file import read_snapshot
from resolute_master.scheduler.supply import Supply

REASONS_SHOWN = 200
"""Number of waiting allocations with a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A plan as JSON values, one row for each thing that is decided, in the order of the decision.

    `place`: task, job, on (slots by agent), reason. `preempt`: task, job, for, reason. `hold`: task, agents (slots by agent),
    until. `machines`: what waits for machines of an elastic pool, without what those could never hold; `no_machines`: why that pool
    may ask for none, empty where it may or where nothing waits for them. `waiting`: task, job, reason, of the first of those that
    continue waiting; `waiting_count` of all.
    """

    pool: str
    now: str
    place: tuple[dict[str, Any], ...]
    preempt: tuple[dict[str, Any], ...]
    hold: tuple[dict[str, Any], ...]
    machines: tuple[str, ...]
    no_machines: str
    waiting: tuple[dict[str, Any], ...]
    waiting_count: int
    revisit_at: str | None


def parsed(text: str) -> object:
    """The data of a file. Raises ValueError where the text is not JSON, `InvalidInput` for a duplicate key."""
    return snapshot_edit.parsed(text)


def decide(data: object, changes: Sequence[str] = ()) -> Decided:
    """Decides about the JSON values of a snapshot file. Raises `InvalidInput` for a wrong file or a wrong change."""
    snapshot = read_snapshot(edited(data, changes))
    view = PoolView(snapshot=snapshot, starts=None)
    outcome = plan_pool(view).outcome
    plan = outcome.plan
    placed = {placement.allocation for placement in plan.place}
    rest = [allocation for allocation in snapshot.pending() if allocation.id not in placed]
    reasons = Reasons(snapshot, outcome, Rehearsal(1, deciding([view])))
    machines = tuple(_machines(snapshot, plan, reasons))
    return Decided(
        pool=snapshot.policy.name,
        now=snapshot.now.isoformat(),
        place=tuple(_placements(snapshot, plan)),
        preempt=tuple(_preemptions(snapshot, plan)),
        hold=tuple(
            {"task": hold.allocation, "agents": dict(hold.agents), "until": hold.kind.until} for hold in plan.holds
        ),
        machines=machines,
        no_machines=_no_machines(snapshot.supply) if machines else "",
        waiting=tuple(_waiting(reasons, rest)),
        waiting_count=len(rest),
        revisit_at=None if plan.revisit_at is None else plan.revisit_at.isoformat(),
    )


def explained(data: object, changes: Sequence[str], job: str) -> ExplainJobResponse:
    """The reason why a job in the file waits. Raises `InvalidInput` as `decide`, `NotFound` for a job without allocations in the
    file."""
    snapshot = read_snapshot(edited(data, changes))
    if JobId(job) not in snapshot.job_allocations:
        raise NotFound("job", job, f"the jobs with work in the file are {names(list(snapshot.job_allocations))}")
    view = PoolView(snapshot=snapshot, starts=None)
    return explain_message(snapshot, JobId(job), explain(snapshot, JobId(job), decides=deciding([view])), cycle=0)


def _no_machines(supply: Supply) -> str:
    if supply.room and supply.offers:
        return ""
    return supply.reason or ("none is offered for now" if supply.room else "the pool is at its maximum")


def _job_of(snapshot: PoolSnapshot, id_: AllocationId) -> JobId:
    return snapshot.allocations[id_].job_id


def _placements(snapshot: PoolSnapshot, plan: Plan) -> Iterator[dict[str, Any]]:
    for placement in plan.place:
        on = {agent: [slot.index for slot in placement.slots if slot.agent == agent] for agent in placement.agents}
        job = _job_of(snapshot, placement.allocation)
        yield {"task": placement.allocation, "job": job, "on": on, "reason": placement.reason}


def _preemptions(snapshot: PoolSnapshot, plan: Plan) -> Iterator[dict[str, Any]]:
    for preemption in plan.preempt:
        job = _job_of(snapshot, preemption.allocation)
        winner = preemption.for_allocation
        yield {"task": preemption.allocation, "job": job, "for": winner, "reason": preemption.reason}


def _machines(snapshot: PoolSnapshot, plan: Plan, reasons: Reasons) -> Iterator[str]:
    """The gangs that wait for machines. The provisioner gets all pending gangs and determines those that no machine can hold."""
    fits: dict[tuple[int, bool], bool] = {}
    for gang in plan.demand.gangs:
        allocation = snapshot.allocations[AllocationId(gang.token)]
        need = (allocation.slots_needed, allocation.single_node)
        if need not in fits:
            fits[need] = reasons.misfit(allocation) is None
        if fits[need]:
            yield gang.token


def _waiting(reasons: Reasons, rest: Sequence[Allocation]) -> Iterator[dict[str, Any]]:
    for allocation in islice(rest, REASONS_SHOWN):
        yield {"task": allocation.id, "job": allocation.job_id, "reason": reasons.reason(allocation)}
