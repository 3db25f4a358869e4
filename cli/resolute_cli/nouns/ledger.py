"""`det ledger`: where the paid time of the machines went."""

from __future__ import annotations

import argparse

from resolute.wire.rest.extensions import LedgerRow
from resolute_cli.command import Command
from resolute_cli.invocation import Invocation
from resolute_cli.render import duration_text, percent_text, price_text


def show(cli: Invocation, args: argparse.Namespace) -> None:
    ledger = cli.api().cluster.ledger()
    columns = ("Instance", "Resource Pool", "Slots", "Paid", "Useful", "Starting", "Checkpointing", "Lost", "Idle")
    rows: list[tuple[object, ...]] = [
        (entry.instance_id, entry.pool, entry.slots, *_cells(entry.row)) for entry in ledger.instances
    ]
    rows.append(("total", None, None, *_cells(ledger.totals)))
    if cli.render.format is None:
        rows.append(("share", None, None, None, *_shares(ledger.totals), None, None))
    title = "Slot-seconds by purpose" if cli.render.format is None else None
    cli.render.table((*columns, "Cost", "Steps Lost"), rows, ledger, title=title)
    if cli.render.format is None:
        for text in unknown_prices(ledger.totals):
            cli.render.note(text)
    if cli.render.format is None and ledger.interruptions:
        interruptions = [
            (one.at, one.instance_id, one.trial_id, one.noticed, one.steps_done, one.steps_saved, one.steps_lost)
            for one in ledger.interruptions
        ]
        names = ("Time", "Instance", "Trial ID", "With Notice", "Steps Done", "Steps Saved", "Steps Lost")
        cli.render.table(names, interruptions, ledger.interruptions, title="Interruptions")


def unknown_prices(totals: LedgerRow) -> tuple[str, ...]:
    """What the sums leave out, if anything."""
    if not totals.cost_unknown_s:
        return ()
    unknown = duration_text(totals.cost_unknown_s)
    return (f"The price is unknown for {unknown} of slot-time; the sums exclude it.",)


def _shares(row: LedgerRow) -> tuple[str, ...]:
    """Each part of the paid time in percent; nothing where nothing was paid."""
    parts = (row.useful_s, row.starting_s, row.checkpointing_s, row.lost_s, row.idle_s)
    return tuple(percent_text(part / row.paid_s if row.paid_s else None) for part in parts)


def _cells(row: LedgerRow) -> tuple[object, ...]:
    times = (row.paid_s, row.useful_s, row.starting_s, row.checkpointing_s, row.lost_s, row.idle_s)
    return (*(duration_text(time) for time in times), price_text(row.cost, 6), row.steps_lost)


NOUN = Command(name="ledger", help="show the use of paid slot-time", run=show, formats=("json", "csv"))
