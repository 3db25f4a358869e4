"""`det resource-pool`: pools and how full they are."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation


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
            pool.type.name,
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


NOUN = Group(
    name="resource-pool",
    help="list resource pools",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list resource pools", run=list_pools, formats=("json", "csv")),
    ),
)
