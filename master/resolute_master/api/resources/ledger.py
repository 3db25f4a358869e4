"""The ledger of the cluster: what the paid time of each machine was spent on, and the cost of each interruption."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.wire.rest.extensions import GetLedgerResponse, InstanceLedger, Interruption, LedgerRow
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.ids import AgentId
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle import ledger as books
from resolute_master.lifecycle.cost import Line, line_of_machine, total


async def get_ledger(call: Call, _: None) -> GetLedgerResponse:
    """The ledger: machines, and the time and money for which they were paid."""
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


# ----------------------------------------------------------------------------------------------------------- rows


def _instance_row(instance: Instance, line: Line) -> InstanceLedger:
    return InstanceLedger(
        instance_id=instance.id,
        pool=instance.pool,
        slots=instance.slots,
        price_per_hour=instance.price_per_hour,
        paid_from=instance.paid_from,
        paid_until=instance.paid_until,
        row=shown(line),
    )


def shown(line: Line, steps_lost: int = 0) -> LedgerRow:
    """A row of the answer: slot-seconds by what they were spent on, and their cost."""
    booking = line.booking
    unknown = booking.paid_s > 0 and line.cost_unknown_s >= booking.paid_s
    return LedgerRow(
        paid_s=booking.paid_s,
        useful_s=booking.useful_s,
        starting_s=booking.starting_s,
        checkpointing_s=booking.checkpointing_s,
        lost_s=booking.lost_s,
        idle_s=booking.idle_s,
        cost=None if unknown else line.cost,
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
