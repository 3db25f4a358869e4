"""`det trial`: the trials of an experiment, and one of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resolute.errors import NotFound
from resolute.wire.rest.enums import CheckpointSortBy, OrderBy, WireCheckpointState
from resolute_cli.checkpoint_tables import checkpoint_table, download
from resolute_cli.command import Command, Group, UsageError, experiment_id, paging, trial_id
from resolute_cli.experiment_tables import in_words, ranked_trials
from resolute_cli.failures import explained
from resolute_cli.invocation import Invocation
from resolute_cli.logs import days_flags, log_flags, print_trial_logs, query_of
from resolute_cli.render import as_mapping, json_block, size_text, state_text, time_text
from resolute_cli.searching import PLACE_COLUMNS, places, search_of
from resolute_cli.workloads import Step, steps_of

if TYPE_CHECKING:
    from resolute.wire.rest.extensions import TrialAllocation
    from resolute.wire.rest.trials import Trial


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.trials import GetTrialWorkloadsQuery

    api = cli.api()
    trial = api.trials.get(args.trial_id)
    query = GetTrialWorkloadsQuery(limit=args.limit, offset=args.offset, include_batch_metrics=args.metrics)
    workloads = api.trials.workloads(args.trial_id, query)
    attempts = api.trials.allocations(args.trial_id)
    values = {
        "trial": as_mapping(trial),
        "workloads": [as_mapping(workload) for workload in workloads],
        "allocations": [as_mapping(attempt) for attempt in attempts],
    }
    if cli.render.format == "json":
        cli.render.value(values)
        return
    if cli.render.for_people and not args.metrics:
        _summary(cli, trial, attempts, args)
        return
    columns: tuple[str, ...] = ("Experiment ID", "State", "H-Params")
    row: tuple[object, ...] = (trial.experiment_id, state_text(trial.state), json_block(trial.hparams))
    if args.metrics_summary:
        columns, row = (*columns, "Summary Metrics"), (*row, json_block(trial.summary_metrics or {}))
    cli.render.table((*columns, "Started", "Ended"), [(*row, trial.start_time, trial.end_time)], values)
    names: tuple[str, ...] = ("# of Batches", "Report Time", "Checkpoint", "Checkpoint UUID", "Checkpoint Metadata")
    names += ("Validation Metrics", *(("Workload Metrics",) if args.metrics else ()))
    rows = [_workload_row(step, metrics=args.metrics) for step in steps_of(workloads)]
    cli.render.table(names, rows, values, title="Workloads")
    if cli.render.format is None:
        _attempts_table(cli, attempts)
        for line in explained(trial):
            cli.render.line(line)


def _summary(cli: Invocation, trial: Trial, attempts: Sequence[TrialAllocation], args: argparse.Namespace) -> None:
    """Its state, its progress, where it ran, why it failed."""
    best, latest = trial.best_validation, trial.latest_validation
    facts = [
        ("state", f"{state_text(trial.state)} at step {trial.total_batches_processed}, {trial.restarts} restart(s)"),
        ("started", f"{time_text(trial.start_time)}{f' to {time_text(trial.end_time)}' if trial.end_time else ''}"),
        ("hparams", in_words(trial.hparams)),
        ("best", f"step {best.total_batches}: {in_words(best.metrics.avg_metrics)}" if best is not None else ""),
        (
            "latest",
            f"step {latest.total_batches}: {in_words(latest.metrics.avg_metrics)}" if latest is not None else "",
        ),
        ("checkpoints", f"{trial.checkpoint_count or 0}, {size_text(trial.total_checkpoint_size or 0)}"),
        ("saved best", (trial.best_checkpoint.uuid or "") if trial.best_checkpoint is not None else ""),
    ]
    cli.render.line(f"Trial {trial.id} of experiment {trial.experiment_id}")
    for name, fact in facts:
        if fact:
            cli.render.line(f"  {name:<12} {fact}")
    if args.metrics_summary:
        cli.render.value(trial.summary_metrics or {})
    _attempts_table(cli, attempts)
    for line in explained(trial):
        cli.render.line(line)
    cli.render.line(f"Every step: det trial describe {trial.id} --metrics")


def list_trials(cli: Invocation, args: argparse.Namespace) -> None:
    experiments = cli.api().experiments
    experiment, trials = experiments.get(args.experiment_id).experiment, experiments.trials(args.experiment_id)
    columns, rows = ranked_trials(experiment, trials)
    best_first = {row[0]: place for place, row in enumerate(rows)}
    ordered = sorted(trials, key=lambda trial: best_first[trial.id])
    search = search_of(cli, args.experiment_id)
    if search is None:
        cli.render.table(columns, rows, ordered)
    else:
        of_trial = {each.trial_id: each for each in search.trials}
        rows = [(*row, *places(of_trial.get(trial.id))) for row, trial in zip(rows, ordered, strict=True)]
        values = [
            {**as_mapping(trial), "search": as_mapping(of_trial[trial.id]) if trial.id in of_trial else None}
            for trial in ordered
        ]
        cli.render.table((*columns, *PLACE_COLUMNS), rows, values)
    if experiment.warning:
        cli.render.note(f"Warning: {experiment.warning}")


def _attempts_table(cli: Invocation, attempts: Sequence[TrialAllocation]) -> None:
    cli.render.table(
        ("Allocation ID", "State", "Agents", "Slots", "Started", "Ended", "From Step", "To Step", "Kept", "Exit"),
        [
            (
                attempt.allocation_id,
                state_text(attempt.state),
                ", ".join(attempt.agent_ids),
                attempt.slots,
                attempt.start_time,
                attempt.end_time,
                attempt.steps_at_start,
                attempt.steps_at_end,
                attempt.steps_kept,
                attempt.exit_reason,
            )
            for attempt in attempts
        ],
        attempts,
        title="Allocations",
    )


def _workload_row(step: Step, *, metrics: bool) -> tuple[object, ...]:
    saved = step.checkpoint
    row = (
        step.batches,
        step.report_time,
        state_text(saved.state) if saved else None,
        saved.uuid if saved else None,
        saved.metadata if saved else None,
        step.validation.metrics.avg_metrics if step.validation else None,
    )
    return (*row, step.training.metrics.avg_metrics if step.training else None) if metrics else row


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    print_trial_logs(cli, args.trial_id, query_of(args))


def kill(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().trials.kill(args.trial_id)
    cli.render.done(f"Killed trial {args.trial_id}", trial=args.trial_id)


def list_checkpoints(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.checkpoints import GetCheckpointsQuery

    query = GetCheckpointsQuery(sort_by_attr=CheckpointSortBy.END_TIME)
    checkpoint_table(cli, cli.api().trials.checkpoints(args.trial_id, query))


def download_checkpoint(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.checkpoints import GetCheckpointsQuery

    if (args.sort_by is None) != (args.smaller_is_better is None):
        raise UsageError("--sort-by and --smaller-is-better go together; give both or none")
    api = cli.api()
    if args.uuid is not None:
        download(cli, args.uuid, _target(args, args.uuid), "auto", quiet=args.quiet)
        return
    attribute = CheckpointSortBy.BATCH_NUMBER if args.latest else CheckpointSortBy.SEARCHER_METRIC
    order = OrderBy.DESC if args.latest else OrderBy.UNSPECIFIED
    if args.sort_by is not None:
        attribute = CheckpointSortBy.UNSPECIFIED
        order = OrderBy.ASC if args.smaller_is_better else OrderBy.DESC
    query = GetCheckpointsQuery(
        limit=1,
        states=(WireCheckpointState.COMPLETED,),
        sort_by_attr=attribute,
        sort_by_metric=args.sort_by,
        order_by=order,
    )
    found = api.trials.checkpoints(args.trial_id, query)
    if not found:
        raise NotFound("completed checkpoint of trial", args.trial_id)
    download(cli, found[0].uuid, _target(args, found[0].uuid), "auto", quiet=args.quiet)


def _target(args: argparse.Namespace, uuid: str) -> Path:
    return Path(args.output_dir) if args.output_dir else Path("checkpoints", uuid)


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    trial_id(parser)
    parser.add_argument("--metrics-summary", action="store_true", help="show the summary of all metrics")
    parser.add_argument("--metrics", action="store_true", help="show training metrics too")
    paging(parser, limit=1000)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    trial_id(parser)
    log_flags(parser)


def _download_arguments(parser: argparse.ArgumentParser) -> None:
    trial_id(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--best", action="store_true", help="the one with the best metric")
    which.add_argument("--latest", action="store_true", help="the newest one")
    which.add_argument("--uuid", help="the one with this id")
    parser.add_argument("-o", "--output-dir", help="where to put the files (default: checkpoints/<uuid>)")
    parser.add_argument("--sort-by", help="metric by which they are ranked (default: the searcher's)")
    parser.add_argument("--smaller-is-better", type=boolean, help="whether smaller values are better")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the directory")


def boolean(text: str) -> bool:
    """true or false, in the usual spellings."""
    if text.lower() in ("true", "yes", "1"):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def set_log_retention(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().trials.retain_logs(args.trial_id, args.days)
    cli.render.done(
        f"Set log retention of trial {args.trial_id} to {args.days} day(s)", id=args.trial_id, days=args.days
    )


def _retention_arguments(parser: argparse.ArgumentParser) -> None:
    trial_id(parser)
    days_flags(parser)


NOUN = Group(
    name="trial",
    help="manage trials",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list the trials of an experiment, best first",
            run=list_trials,
            arguments=experiment_id,
            formats=("json", "csv"),
        ),
        Command(
            name="describe",
            help="describe a trial",
            run=describe,
            arguments=_describe_arguments,
            formats=("json", "csv"),
        ),
        Command(name="logs", help="show the log of a trial", run=logs, arguments=_logs_arguments),
        Command(name="kill", help="kill a trial", run=kill, arguments=trial_id),
        Command(
            name="list-checkpoints",
            aliases=("lc",),
            help="list the checkpoints of a trial",
            run=list_checkpoints,
            arguments=trial_id,
            formats=("json", "csv"),
        ),
        Command(
            name="download",
            help="download a checkpoint of a trial",
            run=download_checkpoint,
            arguments=_download_arguments,
        ),
        Group(
            name="set",
            help="change a trial",
            commands=(
                Command(
                    name="log-retention",
                    help="set how long the log of a trial is kept",
                    run=set_log_retention,
                    arguments=_retention_arguments,
                ),
            ),
        ),
    ),
)
