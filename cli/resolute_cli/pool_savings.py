"""Savings of other machine types or settings of a pool, for `det pool validate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from resolute_cli.loading import loading
from resolute_cli.render import duration_text, percent_text

if TYPE_CHECKING:
    from resolute_master.forecast.advice import Advice


def savings(file: Path, pool: str, jobs: Path | None) -> Advice | None:
    """None without findings."""
    with loading("the simulator", "cli,master"):
        from resolute_sim.twin.advice_of_file import advice_of_file
    return advice_of_file(file, pool, jobs)


def sentences(found: Advice, jobs: Path | None) -> Iterator[str]:
    by = f"the {found.jobs} jobs of {jobs}" if jobs is not None else f"a sample of {found.jobs} jobs"
    yield (
        f"In a simulation of {by} the pool costs {found.cost_a_month:,.0f} $ a month, and jobs wait "
        f"{duration_text(found.wait_mean_s)} on average."
    )
    for each in found.savings:
        more_s = each.wait_mean_s - found.wait_mean_s
        longer = "longer" if more_s >= 0 else "less"
        yield (
            f"{each.key}: {each.value} saves {each.saves_a_month:,.0f} $ a month ({percent_text(each.share)}); jobs wait "
            f"{duration_text(abs(more_s))} {longer}."
        )
    if not found.savings:
        yield (
            "No other machine type of its family, and no other setting of idle machines or moves, saves anything in this "
            "simulation."
        )
    if jobs is None:
        yield "Your own jobs may differ: give past ones with --jobs."
