"""Tables of experiments: the list, and the long description."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from resolute.errors import InvalidInput
from resolute_cli.command import UsageError
from resolute_cli.failures import explained
from resolute_cli.invocation import Invocation
from resolute_cli.render import (
    as_mapping,
    csv_text,
    duration_text,
    json_block,
    percent_text,
    size_text,
    state_text,
    time_text,
)
from resolute_cli.searching import NO_CELLS, SEARCH_COLUMNS, cells_by_trial, search_of
from resolute_cli.workloads import Step, steps_of

if TYPE_CHECKING:
    from resolute.wire.rest.experiments import Experiment
    from resolute.wire.rest.trials import MetricsWorkload, Trial

Table = tuple[Sequence[str], Sequence[Sequence[object]]]

TRIALS_SHOWN = 10
"""By `describe`; `det trial list` shows all."""


def experiment_columns(*, show_project: bool, show_archived: bool) -> tuple[str, ...]:
    names = ("ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended", "Resource Pool")
    return (*(("Workspace", "Project") if show_project else ()), *names, *(("Archived",) if show_archived else ()))


def experiment_row(experiment: Experiment, *, show_project: bool, show_archived: bool) -> tuple[object, ...]:
    row = (
        experiment.id,
        experiment.username,
        experiment.name,
        experiment.forked_from,
        state_text(experiment.state),
        percent_text(experiment.progress),
        experiment.start_time,
        experiment.end_time,
        experiment.resource_pool,
    )
    place = (experiment.workspace_name, experiment.project_name) if show_project else ()
    return (*place, *row, *((experiment.archived,) if show_archived else ()))


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    """`det experiment describe`: three tables over all of the experiments named."""
    from resolute.wire.rest.trials import GetTrialWorkloadsQuery

    api = cli.api()
    experiments: list[Experiment] = []
    trials: list[Trial] = []
    steps: dict[int, list[Step]] = {}
    cells: dict[int, tuple[object, ...]] = {}
    values = []
    every_step = args.metrics or args.outdir is not None or not cli.render.for_people
    for number in _numbers(args.experiment_ids):
        experiment = api.experiments.get(number).experiment
        found = api.experiments.trials(number)
        cells |= cells_by_trial(search_of(cli, number))
        experiments.append(experiment)
        trials.extend(found)
        for trial in found if every_step else ():
            workloads = api.trials.workloads(trial.id, GetTrialWorkloadsQuery(limit=500))
            steps[trial.id] = steps_of(workloads)
        values.append({"experiment": as_mapping(experiment), "trials": [as_mapping(trial) for trial in found]})
    tables = {
        "experiments": experiments_table(experiments),
        "trials": _trials(trials, cells),
        "workloads": _workloads(steps, metrics=args.metrics),
    }
    if args.outdir is not None:
        _write(tables, Path(args.outdir))
        cli.render.done(f"Wrote {', '.join(f'{name}.csv' for name in tables)} to {args.outdir}", outdir=args.outdir)
        return
    if cli.render.format == "json":
        cli.render.value(values)
        return
    if not every_step:
        for experiment in experiments:
            _summary(cli, experiment, [trial for trial in trials if trial.experiment_id == experiment.id])
        return
    for name, title in (("experiments", "Experiment"), ("trials", "Trials"), ("workloads", "Workloads")):
        columns, rows = tables[name]
        cli.render.table(columns, rows, values, title=title)
    if cli.render.format is None:
        for experiment in experiments:
            if experiment.warning:
                cli.render.line(f"Warning: {experiment.warning}")
        _failures(cli, trials)


def _failures(cli: Invocation, trials: Iterable[Trial]) -> None:
    for trial in trials:
        for line in explained(trial):
            cli.render.line(line)


def _summary(cli: Invocation, experiment: Experiment, trials: Sequence[Trial]) -> None:
    """The most important facts: its state, its best result, why it failed."""
    ended = f" to {time_text(experiment.end_time)}" if experiment.end_time is not None else ""
    lasted = f" ({duration_text(experiment.duration)})" if experiment.duration is not None else ""
    steps = max((trial.total_batches_processed for trial in trials), default=0)
    facts = [
        ("state", f"{state_text(experiment.state)}, {percent_text(experiment.progress or 0.0)} done"),
        ("started", f"{time_text(experiment.start_time)}{ended}{lasted}"),
        ("pool", experiment.resource_pool),
        ("description", experiment.description),
        ("labels", ", ".join(sorted(experiment.labels))),
        ("deadline", _deadline(experiment)),
        ("searcher", f"{experiment.searcher_type}, by {experiment.searcher_metric}"),
        ("trials", f"{experiment.num_trials}, the longest at step {steps}"),
        ("best", _best(experiment, trials)),
        ("checkpoints", f"{experiment.checkpoint_count or 0}, {size_text(experiment.checkpoint_size or 0)}"),
    ]
    cli.render.line(f"Experiment {experiment.id}: {experiment.name}{' (archived)' if experiment.archived else ''}")
    for name, fact in facts:
        if fact:
            cli.render.line(f"  {name:<12} {fact}")
    if experiment.warning:
        cli.render.line(f"Warning: {experiment.warning}")
    if trials:
        columns, rows = ranked_trials(experiment, trials)
        cli.render.table(columns, rows[:TRIALS_SHOWN], None)
        if len(rows) > TRIALS_SHOWN:
            cli.render.line(f"{len(rows) - TRIALS_SHOWN} more: det trial list {experiment.id}")
    _failures(cli, trials)
    cli.render.line(
        f"Every step: det trial describe <trial id> --metrics. Its log: det experiment logs {experiment.id}"
    )


def _best(experiment: Experiment, trials: Iterable[Trial]) -> str:
    if experiment.best_trial_id is None:
        return ""
    said = f"trial {experiment.best_trial_id} with {experiment.searcher_metric} {experiment.best_trial_searcher_metric:.6g}"
    trial = next((each for each in trials if each.id == experiment.best_trial_id), None)
    if trial is None or trial.best_validation is None:
        return said
    saved = trial.best_checkpoint.uuid if trial.best_checkpoint is not None else None
    return f"{said} at step {trial.best_validation.total_batches}{f', checkpoint {saved}' if saved else ''}"


def ranked_trials(experiment: Experiment, trials: Iterable[Trial]) -> Table:
    """Best first by the searcher's metric; those that have not reported it last."""
    smaller = bool(((experiment.config or {}).get("searcher") or {}).get("smaller_is_better", True))

    def key(trial: Trial) -> tuple[bool, float, int]:
        value = trial.searcher_metric_value
        if value is None or math.isnan(value):
            return True, 0.0, trial.id
        return False, value if smaller else -value, trial.id

    columns = ("Trial ID", f"Best {experiment.searcher_metric}", "At Batch", "State", "# of Batches", "Restarts")
    rows = [
        (
            trial.id,
            trial.searcher_metric_value,
            trial.best_validation.total_batches if trial.best_validation is not None else None,
            state_text(trial.state),
            trial.total_batches_processed,
            trial.restarts,
            in_words(trial.hparams),
            trial.best_checkpoint.uuid if trial.best_checkpoint is not None else None,
            trial.start_time,
            trial.end_time,
        )
        for trial in sorted(trials, key=key)
    ]
    return (*columns, "H-Params", "Best Checkpoint", "Started", "Ended"), rows


def in_words(hparams: Mapping[str, object], prefix: str = "") -> str:
    """`lr=0.1 optimizer.momentum=0.9`"""
    parts = [
        in_words(value, f"{prefix}{name}.") if isinstance(value, Mapping) else f"{prefix}{name}={_value(value)}"
        for name, value in sorted(hparams.items())
    ]
    return " ".join(part for part in parts if part)


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def experiments_table(experiments: Sequence[Experiment]) -> Table:
    """With a column more where one has a deadline."""
    deadlines = [_deadline(one) for one in experiments]
    columns = ("Experiment ID", "State", "Progress", "Started", "Ended", "Name", "Description", "Archived")
    rows = [
        (
            one.id,
            state_text(one.state),
            percent_text(one.progress),
            one.start_time,
            one.end_time,
            one.name,
            one.description,
            one.archived,
            one.resource_pool,
            ", ".join(sorted(one.labels)),
            *((deadline,) if any(deadlines) else ()),
        )
        for one, deadline in zip(experiments, deadlines, strict=True)
    ]
    return (*columns, "Resource Pool", "Labels", *(("Deadline",) if any(deadlines) else ())), rows


def _deadline(experiment: Experiment) -> str:
    """It is stored as a moment, and shown as other moments are."""
    stored = ((experiment.config or {}).get("resources") or {}).get("deadline")
    return time_text(datetime.fromisoformat(str(stored))) if stored else ""


def _trials(trials: Iterable[Trial], cells: Mapping[int, tuple[object, ...]]) -> Table:
    columns = ("Trial ID", "Experiment ID", "State", "Started", "Ended", "H-Params", *SEARCH_COLUMNS)
    rows = [
        (
            trial.id,
            trial.experiment_id,
            state_text(trial.state),
            trial.start_time,
            trial.end_time,
            json_block(trial.hparams),
            *cells.get(trial.id, NO_CELLS),
        )
        for trial in trials
    ]
    return columns, rows


def _workloads(steps: dict[int, list[Step]], *, metrics: bool) -> Table:
    every = [step for found in steps.values() for step in found]
    training = _metric_names(step.training for step in every) if metrics else []
    validation = _metric_names(step.validation for step in every) if metrics else []
    columns = (
        *("Trial ID", "# of Batches", "State", "Report Time"),
        *(f"Training Metric: {name}" for name in training),
        *("Checkpoint State", "Checkpoint Report Time", "Validation State", "Validation Report Time"),
        *(f"Validation Metric: {name}" for name in validation),
    )
    rows = [
        (
            *(trial_id, step.batches),
            *(("COMPLETED", step.training.end_time) if step.training else (None, None)),
            *_metric_values(step.training, training),
            *((state_text(step.checkpoint.state), step.checkpoint.end_time) if step.checkpoint else (None, None)),
            *(("COMPLETED", step.validation.end_time) if step.validation else (None, None)),
            *_metric_values(step.validation, validation),
        )
        for trial_id in sorted(steps)
        for step in steps[trial_id]
    ]
    return columns, rows


def _metric_names(reports: Iterable[MetricsWorkload | None]) -> list[str]:
    return sorted({name for report in reports if report is not None for name in report.metrics.avg_metrics})


def _metric_values(report: MetricsWorkload | None, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(report.metrics.avg_metrics.get(name) if report is not None else None for name in names)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"{text!r} is no list of experiment ids; write it like 3,4") from None


def _write(tables: dict[str, Table], directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (columns, rows) in tables.items():
            (directory / f"{name}.csv").write_text(csv_text(columns, rows), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write to {str(directory)!r}: {error.strerror}") from None


def describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_ids", help="ids of the experiments, with commas between them")
    parser.add_argument("--metrics", action="store_true", help="show every step with its metrics")
    parser.add_argument("--outdir", metavar="DIR", help="write the tables as CSV files into this directory")
