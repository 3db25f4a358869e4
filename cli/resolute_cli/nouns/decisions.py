"""`det decisions`: what scheduler and provisioner decided, and why."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command
from resolute_cli.invocation import Invocation


def list_decisions(cli: Invocation, args: argparse.Namespace) -> None:
    decisions = cli.api().cluster.decisions(args.limit)
    rows = [
        (decision.at, decision.cycle, decision.pool, decision.kind, decision.subject, decision.reason)
        for decision in decisions
    ]
    cli.render.table(("Time", "Cycle", "Resource Pool", "Kind", "Subject", "Reason"), rows, decisions)


NOUN = Command(
    name="decisions",
    help="list decisions",
    run=list_decisions,
    arguments=lambda p: p.add_argument("--limit", type=int, default=50, help="number of the latest ones (default 50)"),
    formats=("json", "csv"),
)
