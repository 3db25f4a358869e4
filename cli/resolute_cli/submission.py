"""Submitting an experiment: configuration with overrides, files, upload, and watching what comes of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resolute.errors import FailedPrecondition
from resolute.wire.rest.enums import LaunchWarning
from resolute_cli.configuration_files import configuration_text, overlaid
from resolute_cli.failures import in_one_line, why_it_ended
from resolute_cli.invocation import Invocation
from resolute_cli.logs import print_trial_logs, refuse_format_with_follow
from resolute_cli.render import size_text, state_text
from resolute_cli.searching import preview, seconds_argument
from resolute_cli.training_progress import shown_progress

if TYPE_CHECKING:
    from resolute.client.context import Context
    from resolute.wire.rest.experiment_changes import CreateExperimentResponse
    from resolute.wire.rest.trials import Trial

Pause = Callable[[float], object]

TEST_CONFIG: Mapping[str, Any] = {
    "searcher": {"name": "single", "max_length": {"batches": 1}},
    "min_validation_period": {"batches": 1},
    "min_checkpoint_period": {"batches": 1},
    "max_restarts": 0,
}
"""What a test run changes: one trial, one batch, one validation, one checkpoint."""

_WARNINGS = {
    LaunchWarning.CURRENT_SLOTS_EXCEEDED: "it requests more slots than the pool has now, and waits until the pool has them"
}


def create(cli: Invocation, args: argparse.Namespace) -> int:
    """`det experiment create`"""
    refuse_format_with_follow(args)
    config = configuration_text(args.config_file, args.config)
    if args.preview:
        from resolute.config.yaml_text import load_yaml

        preview(cli, load_yaml(config, what=args.config_file), args.seconds_per_unit)
        return 0
    cli.api()  # who may not submit need not wait for the packing
    context = pack_context(cli, args.model_def, args.include)
    _warn_of_missing_files(cli, config, context)
    if args.test_mode:
        run_test(cli, args, config, context)
        return 0
    answer = submit(cli, args, config, context, activate=not args.paused)
    experiment = answer.experiment
    cli.render.done(
        f"Created experiment {experiment.id}", id=experiment.id, name=experiment.name, job=experiment.job_id
    )
    for warning in answer.warnings:
        cli.render.warning(f"Warning: {_WARNINGS.get(warning, warning.name)}")
    return follow(cli, experiment.id) if args.follow else 0


def _warn_of_missing_files(cli: Invocation, config: str, context: Context) -> None:
    from resolute.config.yaml_text import load_yaml
    from resolute_cli.named_files import missing_files

    text = missing_files(load_yaml(config), {file.path.removeprefix("./") for file in context.files})
    if text is not None:
        cli.render.warning(f"Warning: {text}")


def follow(cli: Invocation, experiment_id: int) -> int:
    """Shows the log of the first trial until its end; returns the exit code."""
    from resolute.client.sdk import TERMINAL, Resolute
    from resolute.wire.rest.logs import LogsQuery

    api = cli.api()
    cli.render.note("Waiting for first trial to begin...")
    first = Resolute(session=api.session).get_experiment(experiment_id).await_first_trial().id
    cli.render.note(f"Following first trial with ID {first}")
    with shown_progress(cli, experiment_id, first):
        print_trial_logs(cli, first, LogsQuery(follow=True))
    state = state_text(api.experiments.get(experiment_id).experiment.state)
    if state == "COMPLETED":
        trial = api.trials.get(first)
        cli.render.success(f"Experiment {experiment_id} ended as COMPLETED{_reached(trial)}")
        return 0
    if state in TERMINAL:
        cli.render.error(why_it_ended(api, experiment_id, state))
        return 1
    trial = api.trials.get(first)
    said = f"Trial {first} is {state_text(trial.state)}; experiment {experiment_id} is {state} and continues"
    if trial.state.name == "ERROR":
        reason = f": {in_one_line(trial.failure)}" if trial.failure is not None else ""
        cli.render.error(said + reason)
        return 1
    cli.render.note(said)
    return 0


def _reached(trial: Trial) -> str:
    """How far the trial came, behind the sentence that it ended."""
    best = trial.best_validation
    steps = f" after {trial.total_batches_processed} steps" if trial.total_batches_processed else ""
    if best is None or trial.searcher_metric_value is None:
        return steps
    return f"{steps}; the best searcher's metric is {trial.searcher_metric_value:.6g}, at step {best.total_batches}"


def submit(
    cli: Invocation,
    args: argparse.Namespace,
    config: str,
    context: Context,
    *,
    activate: bool = True,
    validate_only: bool = False,
) -> CreateExperimentResponse:
    """One request, with a bar for the upload."""
    from resolute.wire.rest.experiment_changes import CreateExperimentRequest

    request = CreateExperimentRequest(
        activate=activate,
        config=config,
        model_definition=context.files,
        project_id=args.project_id,
        template=args.template,
        validate_only=validate_only,
    )
    with cli.render.progress("Uploading") as progress:
        return cli.api().experiments.create(request, progress)


def pack_context(cli: Invocation, directory: str | None, includes: list[str]) -> Context:
    """Reads the files to send and prints their size."""
    from resolute.client.context import Context, pack

    if directory is None and not includes:
        return Context(files=(), total_bytes=0)
    context = pack(Path(directory) if directory is not None else None, [Path(path) for path in includes])
    for skipped in context.skipped:
        cli.render.warning(f"Not sent: {skipped}")
    count = len(context.files)
    cli.render.note(f"Preparing files to send to master... {size_text(context.total_bytes)} and {count} files")
    return context


# ------------------------------------------------------------------------------------------------------- configuration


# ------------------------------------------------------------------------------------------------------------ test runs

STAGES: tuple[tuple[str, Callable[[Trial], bool]], ...] = (
    ("Scheduling task", lambda trial: trial.state.name not in ("ACTIVE", "QUEUED", "PAUSED", "UNSPECIFIED")),
    ("Testing training", lambda trial: trial.total_batches_processed > 0),
    ("Testing validation", lambda trial: trial.latest_validation is not None),
    ("Testing checkpointing", lambda trial: bool(trial.checkpoint_count)),
)
"""What a test run shows, and how each stage is seen to be over."""


def run_test(
    cli: Invocation, args: argparse.Namespace, config: str, context: Context, pause: Pause = time.sleep
) -> None:
    """Checks the configuration, then runs one batch of it and follows the stages."""
    import yaml

    from resolute.config.yaml_text import load_yaml

    cli.render.note("Validating experiment configuration...")
    submit(cli, args, config, context, validate_only=True)
    full = load_yaml(config)
    searcher = {**(full.pop("searcher", None) or {})}
    kept = {key: searcher[key] for key in ("metric", "smaller_is_better") if key in searcher}
    shrunken = overlaid(full, {**TEST_CONFIG, "searcher": {**TEST_CONFIG["searcher"], **kept}})
    answer = submit(cli, args, yaml.safe_dump(shrunken, sort_keys=False), context)
    experiment = answer.experiment.id
    cli.render.note(f"Created test experiment {experiment}")
    state = _follow_stages(cli, experiment, pause)
    if state != "COMPLETED":
        raise FailedPrecondition(
            f"the test experiment {experiment} ended as {state}; see det experiment logs {experiment}"
        )
    cli.render.done("Model definition test succeeded!", id=experiment, state=state)


def _follow_stages(cli: Invocation, experiment_id: int, pause: Pause) -> str:
    from resolute.client.sdk import TERMINAL

    api, passed = cli.api(), 0
    while True:
        state = state_text(api.experiments.get(experiment_id).experiment.state)
        trials = api.experiments.trials(experiment_id)
        while trials and passed < len(STAGES) and (STAGES[passed][1](trials[0]) or state == "COMPLETED"):
            cli.render.note(f"  {STAGES[passed][0]}: passed")
            passed += 1
        if state in TERMINAL:
            if passed < len(STAGES):
                cli.render.note(f"  {STAGES[passed][0]}: failed")
            return state
        pause(0.2)


def create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config_file", help="YAML file with the configuration")
    parser.add_argument("model_def", nargs="?", help="directory with the model code")
    parser.add_argument(
        "-i", "--include", action="append", default=[], metavar="PATH", help="another file or directory to send"
    )
    parser.add_argument("--template", help="template to start from")
    parser.add_argument("--project_id", type=int, help="project of the experiment")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="change one key of the file")
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "-f", "--follow-first-trial", dest="follow", action="store_true", help="show the log of the first trial"
    )
    one.add_argument("--preview", action="store_true", help="preview its search, and create nothing")
    one.add_argument("--paused", action="store_true", help="create the experiment paused")
    seconds_argument(parser)
    one.add_argument(
        "-t",
        "--test-mode",
        action="store_true",
        help="test the code first, with one batch of training and of validation",
    )
