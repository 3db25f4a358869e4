"""Calls beyond the contract: machines, decisions, the attempts at a trial."""

from __future__ import annotations

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.extensions import (
    Decision,
    GetDecisionsQuery,
    GetDecisionsResponse,
    GetInstancesResponse,
    GetTrialAllocationsResponse,
    Instance,
    PreemptionNotice,
    TrialAllocation,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing, rendered
from resolute_master.api.reading.booked_runs import marks_of
from resolute_master.api.reading.finders import trial_at
from resolute_master.api.render.states import task_state
from resolute_master.domain import change
from resolute_master.domain import instance as domain
from resolute_master.domain.agent import MachineNotice
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.trial import Trial
from resolute_master.event_loop import yielding
from resolute_master.lifecycle.ledger import Run, kept_steps, runs
from resolute_provisioner.model import Intent, Observed

MAX_DECISIONS = 10_000
"""The newest decisions; older ones are in the journal."""


# -------------------------------------------------------------------------------------------------------- machines


async def list_instances(call: Call, _: None) -> GetInstancesResponse:
    """Machines of elastic pools, oldest first."""
    found = await call.api.store.instances()
    return GetInstancesResponse(instances=tuple(_instance(i) for i in found))


def _instance(value: domain.Instance) -> Instance:
    return Instance(
        id=value.id,
        pool=value.pool,
        token=value.token,
        state=instance_state(value),
        offer=value.offer_id,
        observed=value.observed.value,
        agent_id=value.agent_id or "",
        slots=value.slots,
        price_per_hour=value.price_per_hour,
        requested_at=value.requested_at,
        joined_at=value.joined_at,
        paid_from=value.paid_from,
        paid_until=value.paid_until,
        end_reason=value.refused or value.stop_reason,
        notice=_notice(value.notice),
    )


def instance_state(value: domain.Instance) -> str:
    """The displayed state: requested, starting, running, draining, stopping, refused or gone."""
    if value.refused:
        return "refused"
    if value.over:
        return "gone"
    if value.intent is Intent.STOP:
        return "stopping"
    if value.draining_since is not None:
        return "draining"
    if value.joined_at is not None:
        return "running"
    return "requested" if value.observed is Observed.UNKNOWN else "starting"


def _notice(value: MachineNotice | None) -> PreemptionNotice | None:
    return None if value is None else PreemptionNotice(kind=value.kind, deadline=value.deadline, reason=value.reason)


# ------------------------------------------------------------------------------------------------------- decisions


async def list_decisions(call: Call, _: None) -> web.Response:
    """The last decisions of scheduler and provisioner, oldest first."""
    limit = call.query(GetDecisionsQuery).limit
    if limit < 0:
        raise InvalidInput(f"limit: {limit} must not be negative; 0 means no limit")
    found = await call.api.store.decisions(min(limit or MAX_DECISIONS, MAX_DECISIONS))
    return await rendered(lambda: GetDecisionsResponse(decisions=tuple(map(_decision, yielding(found)))))


def _decision(value: change.Decision) -> Decision:
    return Decision(at=value.at, pool=value.pool, kind=value.kind, subject=value.subject, reason=value.reason)


# -------------------------------------------------------------------------------------------------------- attempts


async def trial_allocations(call: Call, trial: Trial) -> GetTrialAllocationsResponse:
    """The allocations of a trial, with their machines and times."""
    found = await call.api.store.allocations_of_task(trial.task_id)
    saved = {trial.id: trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0}
    kept = kept_steps(found, saved)
    marks = await marks_of(call.api.store, found, kept)
    instances = {i.agent_id: i.id for i in await call.api.store.instances() if i.agent_id is not None}
    return GetTrialAllocationsResponse(
        allocations=tuple(
            _attempt(run, {str(a): str(i) for a, i in instances.items()}) for run in runs(found, marks, kept)
        )
    )


def _attempt(run: Run, instances: dict[str, str]) -> TrialAllocation:
    value: Allocation = run.allocation
    agents = tuple(c.agent for c in sorted(value.containers, key=lambda c: c.rank))
    return TrialAllocation(
        allocation_id=value.id,
        state=task_state(value.state),
        agent_ids=agents,
        instance_ids=tuple(instances[agent] for agent in agents if agent in instances),
        slots=value.slots_needed,
        run_id=value.run_id,
        start_time=value.started_at,
        end_time=value.ended_at,
        exit_reason=value.exit.reason if value.exit else "",
        exit_code=value.exit.code if value.exit else None,
        preempted=value.preempt is not None,
        notice=_request_notice(value),
        steps_at_start=value.resumed_steps,
        steps_at_end=run.steps_done if run.marks else None,
        steps_kept=run.steps_kept if value.ended else None,
    )


def _request_notice(value: Allocation) -> PreemptionNotice | None:
    """The notice that caused the preemption of the run."""
    request = value.preempt
    if request is None or request.notice is None:
        return None
    return PreemptionNotice(kind=request.notice, deadline=request.deadline, reason=request.reason)


ROUTES = (
    Route("GET", "/api/v1/instances", Action.VIEW, nothing, list_instances),
    Route("GET", "/api/v1/decisions", Action.VIEW, nothing, list_decisions),
    Route("GET", "/api/v1/trials/{trialId}/allocations", Action.VIEW, trial_at("trialId"), trial_allocations),
)
