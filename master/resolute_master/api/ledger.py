"""The books of the cluster: where the paid time of each machine went, and what each interruption cost."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.wire.rest.extensions import GetLedgerResponse, InstanceLedger, Interruption, LedgerRow
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route, nothing
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle import ledger as books
from resolute_master.store.base import Store

TRAINING = "training"
PARTS = ("useful", "starting", "checkpointing", "lost", "idle")


async def get_ledger(call: Call, _: None) -> GetLedgerResponse:
    api, now = call.api, call.api.clock.now()
    instances = await api.store.instances()
    runs = await runs_on(api.store, instances)
    rows = tuple(_instance_row(i, books.book_instance(i, runs, now)) for i in instances if i.paid_from is not None)
    interruptions = tuple(_interruption(i, instances) for i in books.interruptions(runs))
    lost = sum(run.steps_done - run.steps_kept for run in runs)
    return GetLedgerResponse(instances=rows, totals=_sum([r.row for r in rows], lost), interruptions=interruptions)


async def runs_on(store: Store, instances: Sequence[Instance]) -> tuple[books.Run, ...]:
    """Every attempt of the tasks that ever ran on these machines; where a run was taken over, the next one tells."""
    agents = sorted({i.agent_id for i in instances if i.agent_id is not None})
    found = await store.allocations_on_agents(agents)
    attempts: dict[str, Allocation] = {}
    for task in sorted({a.task_id for a in found}):
        attempts.update({a.id: a for a in await store.allocations_of_task(task)})
    allocations = [attempts[id_] for id_ in sorted(attempts)]
    return books.runs(allocations, await marks_of(store, allocations), await _saved_steps(store, allocations))


async def marks_of(store: Store, allocations: Sequence[Allocation]) -> tuple[StepMark, ...]:
    """The marks of these attempts; where one ended unforeseen, its last report may tell of later steps than its marks."""
    marks = list(await store.step_marks([a.id for a in allocations]))
    for allocation in allocations:
        if allocation.trial_id is not None and allocation.exit is not None and allocation.exit.failure is not None:
            report = await store.last_report(allocation.trial_id, allocation.run_id, TRAINING)
            if report is not None:
                marks += books.mark_of_report(allocation.id, report, marks)
    return tuple(marks)


async def _saved_steps(store: Store, allocations: Sequence[Allocation]) -> dict[TrialId, int]:
    steps: dict[TrialId, int] = {}
    for id_ in sorted({a.trial_id for a in allocations if a.trial_id is not None}):
        trial = await store.trial(id_)
        steps[id_] = trial.latest_checkpoint.steps_completed if trial and trial.latest_checkpoint else 0
    return steps


# ----------------------------------------------------------------------------------------------------------- rows


def _instance_row(instance: Instance, booking: books.Booking) -> InstanceLedger:
    price = instance.price_per_hour or 0.0
    return InstanceLedger(
        instance_id=instance.id,
        pool=instance.pool,
        slots=instance.slots,
        price_per_hour=price,
        paid_from=instance.paid_from,
        paid_until=instance.paid_until,
        row=_row(booking, price / 3600.0 / max(1, instance.slots)),
    )


def _row(booking: books.Booking, price_per_slot_s: float) -> LedgerRow:
    """The price of a machine is spread evenly over its slots."""
    seconds = {part: getattr(booking, f"{part}_s") for part in PARTS}
    return LedgerRow(
        paid_s=booking.paid_s,
        useful_s=booking.useful_s,
        starting_s=booking.starting_s,
        checkpointing_s=booking.checkpointing_s,
        lost_s=booking.lost_s,
        idle_s=booking.idle_s,
        cost=booking.paid_s * price_per_slot_s,
        costs={part: value * price_per_slot_s for part, value in seconds.items()},
    )


def _sum(rows: Sequence[LedgerRow], steps_lost: int) -> LedgerRow:
    return LedgerRow(
        paid_s=sum(r.paid_s for r in rows),
        useful_s=sum(r.useful_s for r in rows),
        starting_s=sum(r.starting_s for r in rows),
        checkpointing_s=sum(r.checkpointing_s for r in rows),
        lost_s=sum(r.lost_s for r in rows),
        idle_s=sum(r.idle_s for r in rows),
        cost=sum(r.cost for r in rows),
        costs={part: sum(r.costs[part] for r in rows) for part in PARTS},
        steps_lost=steps_lost,
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
