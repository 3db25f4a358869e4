"""What other machine types or settings of a pool would save: a part of `det pool validate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from resolute_cli.loading import loading
from resolute_cli.render import duration_text, percent_text


def savings(file: Path, pool: str, jobs: Path | None) -> Iterator[str]:
    """Sentences; none where there is nothing to say."""
    with loading("the simulator", "cli,master"):
        from resolute_sim.twin.advice_of_file import advice_of_file
    found = advice_of_file(file, pool, jobs)
    if found is None:
        return
    by = f"the {found.jobs} jobs of {jobs}" if jobs is not None else f"a sample of {found.jobs} jobs"
    yield (
        f"By a simulation of {by} it costs {found.cost_a_month:,.0f} $ a month, and jobs wait "
        f"{duration_text(found.wait_mean_s)} on average."
    )
    for each in found.savings:
        longer = "longer" if each.wait_more_s >= 0 else "less"
        yield (
            f"{each.key}: {each.value} saves {each.saves_a_month:,.0f} $ a month ({percent_text(each.share)}); jobs wait "
            f"{duration_text(abs(each.wait_more_s))} {longer}."
        )
    if not found.savings:
        yield "No other machine type of its family and no other setting of idle machines or moves saves anything there."
    if jobs is None:
        yield "Your own work may differ: give its past with --jobs."
