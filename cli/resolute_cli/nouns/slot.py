"""`det slot`: what each device of the cluster is doing."""

from __future__ import annotations

import argparse

from resolute.wire.rest.agents import Slot
from resolute.wire.rest.tasks import AllocationSummary
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation


def list_slots(cli: Invocation, args: argparse.Namespace) -> None:
    api = cli.api()
    by_container = {part.container_id: task for task in api.agents.tasks() for part in task.resources}
    columns = (
        "Agent ID",
        "Resource Pool",
        "Slot ID",
        "Enabled",
        "Draining",
        "Allocation ID",
        "Task Name",
        "Type",
        "Device",
    )
    rows, values = [], []
    for agent in sorted(api.agents.list(), key=lambda agent: agent.id):
        for slot_id in sorted(agent.slots, key=_slot_order):
            slot = agent.slots[slot_id]
            allocation, task = occupied_by(slot, by_container)
            kind = (
                slot.device.type.value.removeprefix("TYPE_").lower() if slot.device and slot.device.type else "unknown"
            )
            row = (
                agent.id,
                ", ".join(agent.resource_pools),
                slot_id,
                slot.enabled,
                slot.draining,
                allocation,
                task,
                "unknown" if kind == "unspecified" else kind,
                slot.device.brand if slot.device else None,
            )
            rows.append(row)
            values.append(dict(zip(columns, row, strict=True)))
    cli.render.table(columns, rows, values)


def occupied_by(slot: Slot, by_container: dict[str | None, AllocationSummary]) -> tuple[str, str]:
    """(allocation, task name) in a slot; OCCUPIED when the task is not known."""
    if slot.container is None:
        return "FREE", "FREE"
    task = by_container.get(slot.container.id)
    return (task.allocation_id or "", task.name or "") if task is not None else ("OCCUPIED", "OCCUPIED")


def _slot_order(slot_id: str) -> tuple[int, str]:
    return (int(slot_id) if slot_id.isdigit() else 0, slot_id)


def enable(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().agents.enable_slot(args.agent_id, str(args.slot_id))
    _done(cli, args, "Enabled", enabled=True)


def disable(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().agents.disable_slot(args.agent_id, str(args.slot_id))
    _done(cli, args, "Disabled", enabled=False)


def _done(cli: Invocation, args: argparse.Namespace, verb: str, *, enabled: bool) -> None:
    text = f"{verb} slot {args.slot_id} of agent {args.agent_id}"
    cli.render.done(text, agent=args.agent_id, slot=args.slot_id, enabled=enabled)


def _one_slot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent_id", help="id of the agent")
    parser.add_argument("slot_id", type=int, help="number of the slot on the agent")


NOUN = Group(
    name="slot",
    help="manage slots",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list slots", run=list_slots, formats=("json", "csv")),
        Command(name="enable", help="enable a slot", run=enable, arguments=_one_slot),
        Command(name="disable", help="disable a slot", run=disable, arguments=_one_slot),
    ),
)
