"""`det pool advise`: settings that would save money in a pool, from the master's simulations of its history."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from resolute.wire.rest.advice import GetPoolAdviceResponse, PoolAdvice, conclusion, remarks
from resolute_cli.command import Command
from resolute_cli.invocation import Invocation
from resolute_cli.render import duration_text, percent_text

COLUMNS = ("Setting", "Now", "Instead", "Saves/Month", "Of the Cost", "Mean Wait Now", "Mean Wait Then")
PAUSE_S = 0.2
"""Pause between two requests. The master holds a request for some seconds before it answers that the advice is not ready."""


def advise(cli: Invocation, args: argparse.Namespace) -> None:
    found = _answer(cli, args.pool_name)
    advice = found.advice
    if advice is None and cli.render.format is None:
        cli.render.line(f"There is no advice: {found.reason}.")
        return
    if cli.render.format is not None or (advice is not None and advice.changes):
        cli.render.table(COLUMNS, [] if advice is None else list(_rows(advice)), found)
    for text in () if advice is None else _notes(found, advice):
        cli.render.note(text)


def _answer(cli: Invocation, pool: str) -> GetPoolAdviceResponse:
    """Waits for the advice, or for the reason that there is none."""
    queue = cli.api().queue
    found = queue.advice(pool)
    if found.advice is None and found.computing:
        cli.render.status(
            f"The master simulates the history of pool {pool} under each change, which can take some minutes."
        )
    while found.advice is None and found.computing:
        time.sleep(PAUSE_S)
        found = queue.advice(pool)
    return found


def _rows(advice: PoolAdvice) -> Iterator[tuple[object, ...]]:
    for each in advice.changes:
        yield (
            each.key,
            each.now,
            each.value,
            f"{each.saves_a_month:,.2f}",
            percent_text(each.share),
            duration_text(advice.wait_mean_s),
            duration_text(each.wait_mean_s),
        )


def _notes(found: GetPoolAdviceResponse, advice: PoolAdvice) -> Iterator[str]:
    if nothing := conclusion(advice):
        yield nothing
    yield (
        f"By a simulation of the {advice.jobs} pieces of work of the last {_days(advice.days)}, machines starting in "
        f"{duration_text(advice.boot_s)}, pool {found.pool} as it is costs {advice.cost_a_month:,.2f} a month, and work waits "
        f"{duration_text(advice.wait_mean_s)} on average."
    )
    yield from remarks(found)
    if found.reason:
        yield f"Computed at {advice.computed_at.isoformat(timespec='seconds')}."


def _days(days: float) -> str:
    return f"{days:.1f} days" if days >= 1.0 else duration_text(86_400.0 * days)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool_name", help="name of the resource pool")


ADVISE = Command(
    name="advise",
    help="show what other settings of an elastic pool would save, from its own history",
    run=advise,
    arguments=_arguments,
    formats=("json", "csv"),
)
