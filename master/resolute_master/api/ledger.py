"""The books of the cluster: where the paid time of each machine went, and what each interruption cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from resolute.wire.rest.extensions import GetLedgerResponse, InstanceLedger, Interruption, LedgerRow
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route, nothing
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle import ledger as books
from resolute_master.lifecycle.cost import Line, line_of_machine, total
from resolute_master.store.base import Store

TRAINING = "training"
NOT_YET = 2**62
"""More steps than any run does: what still runs, and may keep all that it has done."""


async def get_ledger(call: Call, _: None) -> GetLedgerResponse:
    api, now = call.api, call.api.clock.now()
    instances = await api.store.instances()
    runs = await runs_on(api.store, instances)
    booked = books.Books(runs)
    lines = [(each, line_of_machine(each, booked, now=now)) for each in instances if each.paid_from is not None]
    rows = tuple(_instance_row(instance, line) for instance, line in lines)
    summed = total(line for _, line in lines)
    interruptions = tuple(_interruption(i, instances) for i in books.interruptions(runs))
    lost = sum(run.steps_done - run.steps_kept for run in runs)
    return GetLedgerResponse(instances=rows, totals=shown(summed, lost), interruptions=interruptions)


async def runs_on(
    store: Store, instances: Sequence[Instance], *, since: datetime | None = None, until: datetime | None = None
) -> tuple[books.Run, ...]:
    """Attempts that ran on these machines, between these moments if any are given, with what became of their steps.

    Read are the attempts of those tasks, for where a run was taken over the next one tells, and four marks of each: not what
    they reported, however long they ran.
    """
    agents = sorted({i.agent_id for i in instances if i.agent_id is not None})
    found = await store.allocations_on_agents(agents, since=since, until=until)
    attempts = await store.attempts_of_tasks(sorted({a.task_id for a in found}))
    return await _runs(store, attempts, {a.id for a in found})


async def runs_of(store: Store, tasks: Sequence[TaskId]) -> tuple[books.Run, ...]:
    """Every attempt at these tasks, with what became of its steps."""
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
    """The marks of these attempts that tell where their time went; where one ended unforeseen, its last report may tell of
    later steps than its marks."""
    marks = list(await store.telling_marks({a.id: kept.get(a.id, NOT_YET) for a in allocations}))
    for allocation in allocations:
        if allocation.trial_id is not None and allocation.exit is not None and allocation.exit.failure is not None:
            report = await store.last_report(allocation.trial_id, allocation.run_id, TRAINING)
            if report is not None:
                marks += books.mark_of_report(allocation.id, report, marks)
    return tuple(marks)


async def _saved_steps(store: Store, attempts: Sequence[Allocation]) -> dict[TrialId, int]:
    """Of the trials whose last attempt has ended without having done all."""
    steps: dict[TrialId, int] = {}
    for id_ in books.unfinished(attempts):
        trial = await store.trial(id_)
        if trial is not None:
            steps[id_] = trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0
    return steps


# ----------------------------------------------------------------------------------------------------------- rows


def _instance_row(instance: Instance, line: Line) -> InstanceLedger:
    return InstanceLedger(
        instance_id=instance.id,
        pool=instance.pool,
        slots=instance.slots,
        price_per_hour=instance.price_per_hour or 0.0,
        paid_from=instance.paid_from,
        paid_until=instance.paid_until,
        row=shown(line),
    )


def shown(line: Line, steps_lost: int = 0) -> LedgerRow:
    """As it goes out: slot-seconds by what they were spent on, and what they cost."""
    booking = line.booking
    return LedgerRow(
        paid_s=booking.paid_s,
        useful_s=booking.useful_s,
        starting_s=booking.starting_s,
        checkpointing_s=booking.checkpointing_s,
        lost_s=booking.lost_s,
        idle_s=booking.idle_s,
        cost=line.cost,
        costs=line.costs,
        steps_lost=steps_lost,
        cost_unknown_s=line.cost_unknown_s,
    )


def _interruption(value: books.Interruption, instances: Sequence[Instance]) -> Interruption:
    gone = value.allocation.first_failure
    ended = [c for c in value.allocation.containers if gone is None or c.id == gone]
    agents: set[AgentId] = {c.agent for c in ended}
    return Interruption(
        at=value.at,
        trial_id=value.allocation.trial_id or 0,
        allocation_id=value.allocation.id,
        instance_id=next((i.id for i in instances if i.agent_id in agents), ""),
        noticed=value.noticed,
        steps_done=value.steps_done,
        steps_saved=value.steps_kept,
        steps_lost=value.steps_lost,
    )


ROUTES = (Route("GET", "/api/v1/ledger", Action.VIEW, nothing, get_ledger),)
