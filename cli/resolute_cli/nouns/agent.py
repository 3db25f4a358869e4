"""`det agent`: the machines that run tasks."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, Group, UsageError
from resolute_cli.invocation import Invocation


def list_agents(cli: Invocation, args: argparse.Namespace) -> None:
    agents = sorted(cli.api().agents.list(), key=lambda agent: agent.id)
    columns = ("Agent ID", "Version", "Registered Time", "Slots", "Containers", "Resource Pool", "Enabled", "Draining")
    rows = [
        (
            agent.id,
            agent.resolute_version or agent.version,
            agent.registered_time,
            len(agent.slots),
            len(agent.containers),
            ", ".join(agent.resource_pools),
            agent.enabled,
            agent.draining,
            ", ".join(agent.addresses),
        )
        for agent in agents
    ]
    cli.render.table((*columns, "Addresses"), rows, agents)


def enable(cli: Invocation, args: argparse.Namespace) -> None:
    ids = _targets(cli, args)
    for agent_id in ids:
        cli.api().agents.enable(agent_id)
    cli.render.done(f"Enabled {_named(ids)}", agents=ids, enabled=True)


def disable(cli: Invocation, args: argparse.Namespace) -> None:
    ids = _targets(cli, args)
    api = cli.api()
    for agent_id in ids:
        api.agents.disable(agent_id, drain=args.drain)
    if not args.drain:
        cli.render.done(f"Disabled {_named(ids)}", agents=ids, enabled=False)
        return
    cli.render.note(f"Draining {_named(ids)}; tasks that are still running there:")
    tasks = [
        task
        for task in api.agents.tasks()
        if any(agent in ids for part in task.resources for agent in part.agent_devices)
    ]
    rows = [
        (
            task.task_id,
            task.allocation_id,
            task.name,
            task.slots_needed,
            ", ".join(sorted({agent for part in task.resources for agent in part.agent_devices})),
        )
        for task in tasks
    ]
    cli.render.table(("Task ID", "Allocation ID", "Name", "Slots Needed", "Agent"), rows, tasks)


def join_token(cli: Invocation, args: argparse.Namespace) -> None:
    agents = cli.api().agents
    token = (agents.rotate_join_token() if args.rotate else agents.join_token()).join_token
    cli.render.done(token, join_token=token)
    if args.rotate:
        cli.render.note("Agents that have joined keep their credentials; agent.yaml of new ones needs this token.")


def forget(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().agents.forget(args.agent_id, force=args.force)
    cli.render.done(f"Freed the name {args.agent_id}: another machine may join under it", agent=args.agent_id)


def _targets(cli: Invocation, args: argparse.Namespace) -> list[str]:
    if bool(args.agent_id) == bool(args.all):
        raise UsageError("name one agent, or all of them with --all")
    return [args.agent_id] if args.agent_id else sorted(agent.id for agent in cli.api().agents.list())


def _named(ids: list[str]) -> str:
    if not ids:
        return "there is no agent"
    return f"agent {ids[0]}" if len(ids) == 1 else f"agents {', '.join(ids)}"


def _one_or_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent_id", nargs="?", help="id of the agent")
    parser.add_argument("--all", action="store_true", help="every agent")


def _disable_arguments(parser: argparse.ArgumentParser) -> None:
    _one_or_all(parser)
    parser.add_argument("--drain", action="store_true", help="let running tasks finish instead of killing them")


def _join_token_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rotate", action="store_true", help="create a new one, and refuse the previous one from now on"
    )


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent_id", help="id of the agent")
    parser.add_argument("--force", action="store_true", help="also if the agent is connected; its tasks end")


NOUN = Group(
    name="agent",
    help="manage agents",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list agents", run=list_agents, formats=("json", "csv")),
        Command(name="enable", help="enable an agent", run=enable, arguments=_one_or_all),
        Command(
            name="disable",
            help="disable an agent",
            run=disable,
            arguments=_disable_arguments,
            formats=("json", "csv"),
        ),
        Command(
            name="join-token",
            help="show the token with which your own machines join (administrators)",
            run=join_token,
            arguments=_join_token_arguments,
            formats=("json",),
        ),
        Command(
            name="forget",
            help="free the name of an agent whose machine or state directory was lost (administrators)",
            run=forget,
            arguments=_forget_arguments,
            formats=("json",),
        ),
    ),
)
