"""`det resource-pool`: pools, how full they are, and which workspaces they are for."""

from __future__ import annotations

import argparse

from resolute.wire.rest.enums import ResourcePoolType
from resolute.wire.rest.pools import ResourcePool
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.nouns.budget import SET_POOL_BUDGET
from resolute_cli.pool_offers import OFFERS


def list_pools(cli: Invocation, args: argparse.Namespace) -> None:
    pools = sorted(cli.api().queue.pools(), key=lambda pool: pool.name)
    columns = (
        "Name",
        "Type",
        "Scheduler",
        "Agents",
        "Min Agents",
        "Max Agents",
        "Slots Used",
        "Slots",
        "Slots Per Agent",
    )
    rows = [
        (
            pool.name,
            _type(pool),
            pool.scheduler_type.name,
            pool.num_agents,
            pool.min_agents,
            pool.max_agents,
            pool.slots_used,
            pool.slots_available,
            pool.slots_per_agent,
            pool.stats.queued_count if pool.stats else None,
            pool.stats.scheduled_count if pool.stats else None,
            pool.default_compute_pool,
            pool.description,
        )
        for pool in pools
    ]
    cli.render.table((*columns, "Queued", "Scheduled", "Default", "Description"), rows, pools)


def _type(pool: ResourcePool) -> str:
    """The API has no type for a pool whose machines are processes of the master's host, and calls it static."""
    grows = pool.type is ResourcePoolType.STATIC and pool.max_agents > 0
    return "LOCAL (elastic)" if grows else pool.type.name


def add_bindings(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().queue.bind(args.pool_name, args.workspace_names)
    _show_bindings(cli, args.pool_name)


def remove_bindings(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().queue.unbind(args.pool_name, args.workspace_names)
    _show_bindings(cli, args.pool_name)


def replace_bindings(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().queue.rebind(args.pool_name, args.workspace_names)
    _show_bindings(cli, args.pool_name)


def list_workspaces(cli: Invocation, args: argparse.Namespace) -> None:
    _show_bindings(cli, args.pool_name)


def _show_bindings(cli: Invocation, pool: str) -> None:
    api = cli.api()
    bound = set(api.queue.workspaces_of(pool))
    names = [space.name for space in api.cluster.workspaces() if space.id in bound]
    shown = ", ".join(names) or "(all)"
    cli.render.table(("Resource Pool", "Workspaces"), [(pool, shown)], {"pool": pool, "workspaces": names})


def _pool_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool_name", help="name of the resource pool")


def _binding_arguments(parser: argparse.ArgumentParser) -> None:
    _pool_argument(parser)
    parser.add_argument("workspace_names", nargs="+", metavar="workspace_name", help="name of a workspace")


_BINDINGS = Group(
    name="bindings",
    help="manage the workspaces of a pool",
    commands=(
        Command(
            name="add",
            help="bind workspaces to a pool, which only bound workspaces may use",
            run=add_bindings,
            arguments=_binding_arguments,
        ),
        Command(
            name="remove",
            help="unbind workspaces from a pool, which all may use without any",
            run=remove_bindings,
            arguments=_binding_arguments,
        ),
        Command(
            name="replace",
            help="replace the workspaces of a pool",
            run=replace_bindings,
            arguments=_binding_arguments,
        ),
        Command(
            name="list-workspaces",
            help="list the workspaces of a pool",
            run=list_workspaces,
            arguments=_pool_argument,
        ),
    ),
)


NOUN = Group(
    name="resource-pool",
    help="list resource pools, and bind them to workspaces",
    default="list",
    commands=(
        _BINDINGS,
        Command(name="list", aliases=("ls",), help="list resource pools", run=list_pools, formats=("json", "csv")),
        OFFERS,
        SET_POOL_BUDGET,
    ),
)
