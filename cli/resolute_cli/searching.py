"""What a search will do, where its trials are, and why."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resolute.errors import FailedPrecondition
from resolute_cli.configuration_files import configuration_text
from resolute_cli.invocation import Invocation
from resolute_cli.render import percent_text

if TYPE_CHECKING:
    from resolute.wire.rest.searching import GetSearchResponse, SearchedTrial, SearchForecast

SEARCH_COLUMNS = ("Search", "Rung", "Rank", "Metric")
"""The search columns of tables of trials."""


def search_of(cli: Invocation, experiment_id: int) -> GetSearchResponse | None:
    """None for an experiment whose trials are chosen elsewhere."""
    try:
        return cli.api().experiments.search(experiment_id)
    except FailedPrecondition:
        return None


def cells_by_trial(search: GetSearchResponse | None) -> dict[int, tuple[object, ...]]:
    """`SEARCH_COLUMNS` of each trial; the best trial's metric is marked."""
    if search is None:
        return {}
    return {trial.trial_id: _cells(trial, best=trial.trial_id == search.best_trial_id) for trial in search.trials}


PLACE_COLUMNS = ("Search", "Rung", "Rank", "Why")
"""Where a trial is in its search, beside its best metric."""


def places(trial: SearchedTrial | None) -> tuple[object, ...]:
    """`PLACE_COLUMNS` of a trial; empty for a trial without a search."""
    if trial is None:
        return (None,) * len(PLACE_COLUMNS)
    return trial.state, _rung(trial), _rank(trial), trial.reason


NO_CELLS: tuple[object, ...] = (None,) * len(SEARCH_COLUMNS)


def _cells(trial: SearchedTrial, *, best: bool) -> tuple[object, ...]:
    metric = "" if trial.metric is None else f"{trial.metric:.6g}"
    return trial.state, _rung(trial), _rank(trial), f"{metric} (best)" if best else metric


def _rung(trial: SearchedTrial) -> str:
    """Bracket, rung, and how many rungs there are."""
    if trial.rung is None:
        return ""
    return f"{trial.rung} of 0-{(trial.rungs or 1) - 1}" + (f", bracket {trial.bracket}" if trial.bracket else "")


def _rank(trial: SearchedTrial) -> str:
    return "" if trial.rank is None else f"{trial.rank} of {trial.ranked}"


def explain(cli: Invocation, args: argparse.Namespace) -> None:
    """`det experiment explain-search`: every trial, or one, with the reason for where it is."""
    search = cli.api().experiments.search(args.experiment_id)
    trials = [trial for trial in search.trials if args.trial_id in (None, trial.trial_id)]
    if not trials and args.trial_id is not None:
        raise FailedPrecondition(f"experiment {args.experiment_id} has no trial {args.trial_id}")
    if cli.render.format is None:
        better = "smaller" if search.smaller_is_better else "larger"
        best = f"; the best trial is {search.best_trial_id}" if search.best_trial_id is not None else ""
        cli.render.note(
            f"Search {search.name}: {len(search.trials)} trials, {percent_text(search.progress)} done; a {better} "
            f"{search.metric} is better{best}"
        )
    rows = [
        (t.trial_id, *_cells(t, best=t.trial_id == search.best_trial_id), t.length, _likelihood(t), t.reason)
        for t in trials
    ]
    columns = ("Trial ID", *SEARCH_COLUMNS, "Length", "Continues", "Why")
    cli.render.table(columns, rows, search if args.trial_id is None else trials)


def _likelihood(trial: SearchedTrial) -> str:
    return "" if trial.likelihood is None else f"{trial.likelihood:.0%}"


def explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=int, help="number of the experiment")
    parser.add_argument("--trial-id", type=int, help="one trial only")


# ---------------------------------------------------------------------------------------------------------- previews


def preview(cli: Invocation, config: Mapping[str, Any], seconds_per_unit: float | None) -> None:
    """A table of how many trials train how far, and what that takes and costs."""
    summary = cli.api().cluster.preview_search(config, seconds_per_unit=seconds_per_unit)
    if summary is None:
        raise FailedPrecondition("the master returns no state of this search; it is older than this client")
    rows = [(each.count, _length(each.unit.name, each.unit.value)) for each in summary.trials]
    if cli.render.format is None:
        total = sum(each.count for each in summary.trials)
        cli.render.note(f"Search {summary.config['name']}: {total} trial(s)")
    cli.render.table(("Trials", "Training Time"), rows, summary)
    if cli.render.format is None and summary.forecast is not None:
        for line in _forecast(summary.forecast):
            cli.render.note(line)


def _forecast(expected: SearchForecast) -> list[str]:
    pool = f" on pool {expected.pool}" if expected.pool else ""
    if expected.hours is None:
        return [f"Expected time and cost{pool}: unknown: {expected.unknown}"]
    hours = f"{expected.hours:.3g} h ({expected.hours_least:.3g} to {expected.hours_most:.3g})"
    cost = "at a cost that is unknown"
    if expected.dollars is not None:
        cost = f"${expected.dollars:.2f} ({expected.dollars_least:.2f} to {expected.dollars_most:.2f})"
    lines = [f"Expected{pool}: {hours}, {cost}, on up to {expected.machines} machine(s) at a time"]
    return [*lines, *([f"Cost: {expected.unknown}"] if expected.unknown else ()), f"With {expected.basis}"]


def _length(name: str | None, value: int | None) -> str:
    return "as long as their code decides" if value is None else f"{value} {name}"


def preview_search(cli: Invocation, args: argparse.Namespace) -> None:
    """`det preview-search`"""
    from resolute.config.yaml_text import load_yaml

    config = load_yaml(configuration_text(args.config_file, args.config), what=args.config_file)
    preview(cli, config, args.seconds_per_unit)


def seconds_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds-per-unit",
        type=float,
        metavar="SECONDS",
        help="how long a trial trains for one unit of its length (a batch, an epoch), for the expected time and cost; default: "
        "as in earlier runs of the experiment",
    )


def preview_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config_file", help="YAML file with the configuration")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="change one key of the file")
    seconds_argument(parser)
