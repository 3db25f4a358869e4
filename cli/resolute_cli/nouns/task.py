"""`det task`: allocations that wait or run, and the logs of tasks."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.logs import log_flags, print_task_logs, query_of


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


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    print_task_logs(cli, args.task_id, query_of(args))


def clean_up_logs(cli: Invocation, args: argparse.Namespace) -> None:
    removed = cli.api().cluster.clean_up_logs()
    cli.render.done(f"Deleted {removed} rows of log entries.", removed=removed)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task_id", help="id of the task")
    log_flags(parser)


NOUN = Group(
    name="task",
    help="list tasks and their logs",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list tasks", run=list_tasks, formats=("json", "csv")),
        Command(name="logs", help="show the log of a task", run=logs, arguments=_logs_arguments),
        Command(name="cleanup-logs", help="delete logs whose retention period has passed", run=clean_up_logs),
    ),
)
