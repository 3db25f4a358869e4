"""`det task`: allocations that wait or run."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation


def list_tasks(cli: Invocation, args: argparse.Namespace) -> None:
    tasks = cli.api().agents.tasks()
    columns = ("Task ID", "Allocation ID", "Name", "Slots Needed", "Registered Time", "Agent", "Priority")
    rows = [
        (
            task.task_id,
            task.allocation_id,
            task.name,
            task.slots_needed,
            task.registered_time,
            ", ".join(sorted({agent for part in task.resources for agent in part.agent_devices})) or "unassigned",
            task.priority,
            task.resource_pool,
            ", ".join(str(port.port) for port in task.proxy_ports),
        )
        for task in tasks
    ]
    cli.render.table((*columns, "Resource Pool", "Ports"), rows, tasks)


NOUN = Group(
    name="task",
    help="list tasks",
    default="list",
    commands=(Command(name="list", aliases=("ls",), help="list tasks", run=list_tasks, formats=("json", "csv")),),
)
