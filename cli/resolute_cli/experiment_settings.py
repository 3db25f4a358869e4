"""`det experiment` commands about the project of an experiment and the retention of its data."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command, experiment_id
from resolute_cli.invocation import Invocation
from resolute_cli.logs import days_flags
from resolute_cli.render import Block, confirmed


def move(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    project = cluster.project_named(args.workspace_name, args.project_name)
    cli.api().experiments.move(args.experiment_id, project.id)
    text = f"Moved experiment {args.experiment_id} to project '{project.name}' of workspace '{args.workspace_name}'"
    cli.render.done(text, id=args.experiment_id, workspace=args.workspace_name, project=project.name)


def set_policy(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.experiment_changes import PatchCheckpointStorage, PatchExperiment

    experiments = cli.api().experiments
    counts = PatchCheckpointStorage(
        save_experiment_best=args.save_experiment_best,
        save_trial_best=args.save_trial_best,
        save_trial_latest=args.save_trial_latest,
    )
    if not args.yes:
        gone = experiments.not_kept_by(args.experiment_id, counts)
        columns = ("Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources")
        rows = [
            (
                each["TrialID"],
                each["StepsCompleted"],
                each["State"],
                ", ".join(f"{name} {value}" for name, value in sorted(each["ValidationMetrics"].items())),
                each["UUID"],
                Block(sorted(each["Resources"])),
            )
            for each in gone
        ]
        cli.render.table(columns, rows, gone)
        if not confirmed(f"Remove {len(gone)} checkpoint(s) for good?", cli.render, cli.stdin):
            cli.render.done("Nothing was changed", id=args.experiment_id)
            return
    experiments.patch(PatchExperiment(id=args.experiment_id, checkpoint_storage=counts))
    cli.render.done(f"Set the gc-policy of experiment {args.experiment_id}", id=args.experiment_id)


def set_log_retention(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().experiments.retain_logs(args.experiment_id, args.days)
    text = f"Set log retention of experiment {args.experiment_id} to {args.days} day(s)"
    cli.render.done(text, id=args.experiment_id, days=args.days)


def delete_tensorboard_files(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().experiments.delete_tensorboard_files(args.experiment_id)
    text = f"Removal of the TensorBoard files of experiment {args.experiment_id} is in progress"
    cli.render.done(text, id=args.experiment_id)


def _move_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("workspace_name", help="workspace of the project")
    parser.add_argument("project_name", help="project to move it to")


def _policy_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    for name, of in (("experiment-best", "the best of the experiment"), ("trial-best", "the best of each trial"),
                     ("trial-latest", "the newest of each trial")):  # fmt: skip
        parser.add_argument(f"--save-{name}", type=int, required=True, help=f"how many to keep of {of}")
    parser.add_argument("--yes", action="store_true", help="remove without a preview or confirmation")


def _retention_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    days_flags(parser)


MOVE = Command(name="move", help="move an experiment to another project", run=move, arguments=_move_arguments)
DELETE_TENSORBOARD_FILES = Command(
    name="delete-tb-files",
    help="delete what the trials of an experiment wrote for TensorBoard",
    run=delete_tensorboard_files,
    arguments=experiment_id,
)
SETTINGS = (
    Command(
        name="gc-policy",
        help="set how many checkpoints of an experiment are kept",
        run=set_policy,
        arguments=_policy_arguments,
    ),
    Command(
        name="log-retention",
        help="set how long the logs of an experiment are kept",
        run=set_log_retention,
        arguments=_retention_arguments,
    ),
)
