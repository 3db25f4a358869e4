"""`det instance`: the machines of elastic pools, from the recorded intent to launch them to their end."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.render import price_text


def list_instances(cli: Invocation, args: argparse.Namespace) -> None:
    instances = cli.api().cluster.instances()
    columns: tuple[str, ...] = ("ID", "Resource Pool", "Offer", "State", "Observed", "Agent ID", "Slots", "Price/h")
    columns += ("Requested", "Paid From", "Paid Until", "Notice", "End Reason")
    rows = [
        (
            instance.id or f"(token {instance.token})",
            instance.pool,
            instance.offer,
            instance.state,
            instance.observed,
            instance.agent_id,
            instance.slots,
            price_text(instance.price_per_hour),
            instance.requested_at,
            instance.paid_from,
            instance.paid_until,
            f"{instance.notice.kind}: {instance.notice.reason}" if instance.notice else None,
            instance.end_reason,
        )
        for instance in instances
    ]
    cli.render.table(columns, rows, instances)


NOUN = Group(
    name="instance",
    help="list the machines of elastic pools",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list machines", run=list_instances, formats=("json", "csv")),
    ),
)
