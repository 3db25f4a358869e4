"""`det budget`, and the `set-budget` of pools and workspaces: what may be spent in a day and in a month."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from resolute.wire.rest.costs import Budget, BudgetState
from resolute_cli.command import Command, Group, UsageError, amount
from resolute_cli.invocation import Invocation


def list_budgets(cli: Invocation, args: argparse.Namespace) -> None:
    _show(cli, cli.api().cluster.budgets())


def _show(cli: Invocation, found: Sequence[BudgetState]) -> None:
    columns = ("Owner", "Name", "Today", "Per Day", "This Month", "Per Month", "Per Hour Now", "State")
    rows = [
        (
            each.owner,
            each.name,
            f"{each.spent_today:.4f}",
            _amount(each.budget.per_day),
            f"{each.spent_this_month:.4f}",
            _amount(each.budget.per_month),
            f"{each.rate_per_hour:.4f}",
            f"stopped until {each.resumes_at:%Y-%m-%d %H:%M} UTC" if each.resumes_at else "",
        )
        for each in found
    ]
    cli.render.table(columns, rows, found, title="Spending of the budgets (days and months in UTC)")
    for each in found:
        if each.wind_down_reason:
            cli.render.note(each.wind_down_reason)


def _amount(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:g}"


def _set(cli: Invocation, args: argparse.Namespace, store: Callable[[Budget], BudgetState]) -> None:
    if not args.none and args.per_day is None and args.per_month is None:
        raise UsageError("give --per-day, --per-month or both; or --none, which removes the budget")
    if args.none and (args.per_day is not None or args.per_month is not None):
        raise UsageError("--none removes the budget, and excludes an amount")
    _show(cli, (store(Budget(per_day=args.per_day, per_month=args.per_month)),))


def _of_pool(cli: Invocation, args: argparse.Namespace) -> None:
    _set(cli, args, lambda budget: cli.api().cluster.set_pool_budget(args.pool_name, budget))


def _of_workspace(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    workspace = cluster.workspace_named(args.workspace_name)
    _set(cli, args, lambda budget: cluster.set_workspace_budget(workspace.id, budget))


def _arguments(name: str, what: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(name, help=f"name of the {what}")
        parser.add_argument("--per-day", type=amount, help="maximum for a day in UTC")
        parser.add_argument("--per-month", type=amount, help="maximum for a month in UTC")
        parser.add_argument("--none", action="store_true", help="no budget")

    return add


SET_POOL_BUDGET = Command(
    name="set-budget",
    help="set the budget of the machines of a pool",
    run=_of_pool,
    arguments=_arguments("pool_name", "resource pool"),
)
SET_WORKSPACE_BUDGET = Command(
    name="set-budget",
    help="set the budget of the work of a workspace",
    run=_of_workspace,
    arguments=_arguments("workspace_name", "workspace"),
)

NOUN = Group(
    name="budget",
    help="show the budgets and their spending",
    default="list",
    commands=(Command(name="list", aliases=("ls",), help="list budgets", run=list_budgets, formats=("json", "csv")),),
)
