"""`det cost`: spending by purpose and by owner."""

from __future__ import annotations

import argparse

from resolute.wire.rest.costs import CostRow, GetCostQuery, GetCostResponse, SpotSaving
from resolute.wire.rest.extensions import LedgerRow
from resolute_cli.command import Command, UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.nouns.ledger import unknown_prices
from resolute_cli.render import duration_text, percent_text, price_text, time_text

GROUPINGS = ("pool", "instance", "user", "workspace", "experiment", "job", "day")
ACCOUNTS = ("useful", "starting", "checkpointing", "lost", "idle")

NO_TASK = "(no task)"
"""Boots and idle machines, where the rows are of owners of work."""


def show(cli: Invocation, args: argparse.Namespace) -> None:
    if args.experiment is not None:
        if args.by is not None or args.since or args.until:
            raise UsageError(
                "--experiment shows the whole cost of one experiment, and excludes --by, --since and --until"
            )
        _of_experiment(cli, args.experiment)
        return
    found = cli.api().cluster.cost(GetCostQuery(group_by=args.by or GROUPINGS[0], since=args.since, until=args.until))
    if cli.render.format is None:
        _for_people(cli, found)
        return
    columns = (found.group_by, "name", "paid_s", *(f"{each}_s" for each in ACCOUNTS), "cost_unknown_s", "cost")
    rows = [
        (each.key, each.name, *_seconds(each.row), each.row.cost_unknown_s, *_costs(each.row)) for each in found.rows
    ]
    cli.render.table((*columns, *(f"{each}_cost" for each in ACCOUNTS)), rows, found)


def _of_experiment(cli: Invocation, id_: int) -> None:
    """By trial, with its limit."""
    found = cli.api().experiments.cost(id_)
    rows: list[tuple[object, ...]] = [(each.key, *_cells(each.row)) for each in found.trials]
    if cli.render.format is None:
        rows.append(("total", *_cells(found.totals)))
    columns = ("Trial", "Paid", "Useful", "Starting", "Checkpointing", "Lost", "Idle", "Cost", "Wasted")
    limit = "no limit" if found.max_cost is None else f"at most {found.max_cost:g}"
    cli.render.table(columns, rows, found, title=f"Slot-time of experiment {id_} and its price ({limit})")
    if found.wind_down_reason:
        cli.render.note(found.wind_down_reason)


def _for_people(cli: Invocation, found: GetCostResponse) -> None:
    columns = (
        found.group_by.capitalize(),
        "Paid",
        "Useful",
        "Starting",
        "Checkpointing",
        "Lost",
        "Idle",
        "Cost",
        "Wasted",
    )
    rows = [(_label(each), *_cells(each.row)) for each in found.rows]
    rows.append(("total", *_cells(found.totals)))
    since = f"from {time_text(found.since)}" if found.since else "from the beginning"
    title = f"Slot-time and its price, {since} to {time_text(found.until)}"
    cli.render.table(columns, rows, found, title=title)
    for text in unknown_prices(found.totals):
        cli.render.note(text)
    if found.spot is not None:
        cli.render.note(spot_text(found.spot))
    for source in found.price_sources:
        cli.render.note(f"Prices: {source}")


def spot_text(spot: SpotSaving) -> str:
    """What spot has saved, as far as both prices are known."""
    saved, whole = spot.on_demand_cost - spot.spot_cost, spot.on_demand_cost
    unknown = f"; {duration_text(spot.not_compared_s)} on spot are of an unknown price" if spot.not_compared_s else ""
    if not whole:
        return f"Spot: not compared with on demand{unknown}"
    share = percent_text(saved / whole)
    return f"Spot: {price_text(spot.spot_cost)}, and {price_text(whole)} on demand: {price_text(saved)} ({share}) saved{unknown}"


def _label(row: CostRow) -> str:
    if not row.key:
        return NO_TASK
    return f"{row.key} ({row.name})" if row.name else row.key


def _cells(row: LedgerRow) -> tuple[str, ...]:
    """Wasted is the share of the price that was not useful."""
    times = (duration_text(seconds) for seconds in _seconds(row))
    wasted = percent_text(1 - row.costs.get("useful", 0.0) / row.cost if row.cost else None)
    return (*times, price_text(row.cost), wasted)


def _seconds(row: LedgerRow) -> tuple[float, ...]:
    return (row.paid_s, row.useful_s, row.starting_s, row.checkpointing_s, row.lost_s, row.idle_s)


def _costs(row: LedgerRow) -> tuple[float | None, ...]:
    return (row.cost, *(row.costs.get(account, 0.0) for account in ACCOUNTS))


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=GROUPINGS, help="subject of a row (default pool)")
    parser.add_argument("--since", default="", help="a date, a time, or how long ago (7d, 36h); default: the beginning")
    parser.add_argument("--until", default="", help="likewise; default: now")
    parser.add_argument("--experiment", type=int, metavar="ID", help="the cost of this experiment, by trial")


NOUN = Command(name="cost", help="show spending", run=show, arguments=_arguments, formats=("json", "csv"))
