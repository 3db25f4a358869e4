"""`det experiment`: from submission to deletion."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.enums import CheckpointSortBy, OrderBy, WireCheckpointState
from resolute_cli.checkpoint_tables import checkpoint_table, download
from resolute_cli.command import Command, Group, UsageError, amount, experiment_id, paging
from resolute_cli.experiment_settings import DELETE_TENSORBOARD_FILES, MOVE, SETTINGS
from resolute_cli.experiment_tables import describe, describe_arguments, experiment_columns, experiment_row
from resolute_cli.failures import why_it_ended
from resolute_cli.invocation import Invocation
from resolute_cli.logs import log_flags, print_trial_logs, query_of
from resolute_cli.nouns.trial import boolean
from resolute_cli.render import confirmed, json_block, state_text
from resolute_cli.searching import NO_CELLS, SEARCH_COLUMNS, cells_by_trial, explain, explain_arguments, search_of
from resolute_cli.submission import create, create_arguments

if TYPE_CHECKING:
    from resolute.wire.rest.experiment_changes import PatchResources
    from resolute.wire.rest.experiments import Experiment

PAST = {
    "activate": "Activated",
    "pause": "Paused",
    "cancel": "Canceled",
    "kill": "Killed",
    "archive": "Archived",
    "unarchive": "Unarchived",
}


def list_experiments(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.experiments import GetExperimentsQuery

    api = cli.api()
    query = GetExperimentsQuery(
        limit=args.limit,
        offset=args.offset,
        archived=None if args.all else False,
        users=() if args.all else (api.users.me().username,),
    )
    if args.pages == "1":
        found: tuple[Experiment, ...] = api.experiments.page(query).experiments
    else:
        found = api.experiments.list(query)
    columns = experiment_columns(show_project=args.show_project, show_archived=args.all)
    rows = [experiment_row(one, show_project=args.show_project, show_archived=args.all) for one in found]
    cli.render.table(columns, rows, found)


def act(verb: str, *aliases: str) -> Command:
    def run(cli: Invocation, args: argparse.Namespace) -> None:
        cli.api().experiments.act(args.experiment_id, verb)
        cli.render.done(f"{PAST[verb]} experiment {args.experiment_id}", id=args.experiment_id, action=verb)

    return Command(name=verb, aliases=aliases, help=f"{verb} an experiment", run=run, arguments=experiment_id)


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    trials = cli.api().experiments.trials(args.experiment_id)
    if not trials:
        raise NotFound("trial of experiment", args.experiment_id)
    print_trial_logs(cli, min(trial.id for trial in trials), query_of(args))


def list_trials(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.trials import GetExperimentTrialsQuery

    experiments = cli.api().experiments
    query = GetExperimentTrialsQuery(limit=args.limit, offset=args.offset)
    if args.pages == "1":
        trials = experiments.trials_page(args.experiment_id, query).trials
    else:
        trials = experiments.trials(args.experiment_id, query)
    cells = cells_by_trial(search_of(cli, args.experiment_id))
    rows = [
        (
            trial.id,
            state_text(trial.state),
            json_block(trial.hparams),
            trial.start_time,
            trial.end_time,
            trial.total_batches_processed,
            *cells.get(trial.id, NO_CELLS),
        )
        for trial in trials
    ]
    columns = ("Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches", *SEARCH_COLUMNS)
    cli.render.table(columns, rows, trials)


def list_checkpoints(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.checkpoints import GetCheckpointsQuery

    if args.best is not None:
        query = GetCheckpointsQuery(sort_by_attr=CheckpointSortBy.SEARCHER_METRIC, limit=args.best)
    else:
        query = GetCheckpointsQuery(sort_by_attr=CheckpointSortBy.END_TIME)
    checkpoint_table(cli, cli.api().experiments.checkpoints(args.experiment_id, query))


def config(cli: Invocation, args: argparse.Namespace) -> None:
    cli.render.value(cli.api().experiments.get(args.experiment_id).experiment.config)


def wait(cli: Invocation, args: argparse.Namespace, pause: Callable[[float], object] = time.sleep) -> int:
    from resolute.client.sdk import TERMINAL

    api = cli.api()
    while True:
        state = state_text(api.experiments.get(args.experiment_id).experiment.state)
        if state in TERMINAL:
            cli.render.done(why_it_ended(api, args.experiment_id, state), id=args.experiment_id, state=state)
            return 0 if state == "COMPLETED" else 1
        pause(args.polling_interval)


def delete(cli: Invocation, args: argparse.Namespace) -> None:
    api, number = cli.api(), args.experiment_id
    question = f"Delete experiment {number} with its checkpoints and logs for good?"
    if not args.yes and not confirmed(question, cli.render, cli.stdin):
        cli.render.done("Nothing was deleted", id=number, deleted=False)
        return
    api.experiments.delete(number)
    cli.render.done(f"Deletion of experiment {number} is in progress", id=number, deleted=True)


def download_model_definition(cli: Invocation, args: argparse.Namespace) -> None:
    path = Path(args.output_dir, f"experiment_{args.experiment_id}_model_def.tgz")
    content = cli.api().experiments.model_definition(args.experiment_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"cannot write {str(path)!r}: {error.strerror}") from None
    cli.render.done(f"Saved the model definition to {path}", id=args.experiment_id, path=str(path))


def download_checkpoints(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.checkpoints import GetCheckpointsQuery

    if (args.sort_by is None) != (args.smaller_is_better is None):
        raise UsageError("--sort-by and --smaller-is-better go together; give both or none")
    query = GetCheckpointsQuery(
        limit=args.top_n,
        states=(WireCheckpointState.COMPLETED,),
        sort_by_attr=CheckpointSortBy.UNSPECIFIED if args.sort_by else CheckpointSortBy.SEARCHER_METRIC,
        sort_by_metric=args.sort_by,
        order_by=OrderBy.UNSPECIFIED
        if args.sort_by is None
        else OrderBy.ASC
        if args.smaller_is_better
        else OrderBy.DESC,
    )
    found = cli.api().experiments.checkpoints(args.experiment_id, query)
    if not found:
        raise NotFound("completed checkpoint of experiment", args.experiment_id)
    for checkpoint in found:
        download(cli, checkpoint.uuid, Path(args.output_dir, checkpoint.uuid), "auto", quiet=args.quiet)


# ------------------------------------------------------------------------------------------------------------ changing


def set_text(field: str) -> Command:
    def run(cli: Invocation, args: argparse.Namespace) -> None:
        from resolute.wire.rest.experiment_changes import PatchExperiment

        given = {field: args.value}
        cli.api().experiments.patch(PatchExperiment(id=args.experiment_id, **given))
        _said(cli, args.experiment_id, field, args.value)

    def arguments(parser: argparse.ArgumentParser) -> None:
        experiment_id(parser)
        parser.add_argument("value", metavar=field, help=f"new {field}")

    return Command(name=field, help=f"set the {field} of an experiment", run=run, arguments=arguments)


def set_resource(
    name: str, resources: Callable[[float | None], PatchResources], kind: Callable[[str], object]
) -> Command:
    def run(cli: Invocation, args: argparse.Namespace) -> None:
        from resolute.wire.rest.experiment_changes import PatchExperiment

        patch = PatchExperiment(id=args.experiment_id, resources=resources(args.value))
        cli.api().experiments.patch(patch)
        _said(cli, args.experiment_id, name, args.value)

    def arguments(parser: argparse.ArgumentParser) -> None:
        experiment_id(parser)
        parser.add_argument("value", metavar=name, type=kind, help=f"new {name}")

    return Command(name=name, help=f"set the {name} of an experiment", run=run, arguments=arguments)


def _said(cli: Invocation, number: int, field: str, value: object) -> None:
    cli.render.done(f"Set `{field}` of experiment {number} to {value}", id=number, **{field: value})


def _max_slots(value: float | None) -> PatchResources:
    from resolute.wire.rest.experiment_changes import PatchResources

    return PatchResources(max_slots=None if value is None else int(value))


def set_max_cost(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().experiments.set_max_cost(args.experiment_id, args.value)
    _said(cli, args.experiment_id, "max-cost", args.value)


def _max_cost_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("value", metavar="max-cost", type=_money, help="in the currency of the prices; none: no limit")


def _money(text: str) -> float | None:
    return None if text == "none" else amount(text)


def _priority(value: float | None) -> PatchResources:
    from resolute.wire.rest.experiment_changes import PatchResources

    return PatchResources(priority=None if value is None else int(value))


def _weight(value: float | None) -> PatchResources:
    from resolute.wire.rest.experiment_changes import PatchResources

    return PatchResources(weight=value)


def add_label(cli: Invocation, args: argparse.Namespace) -> None:
    labels = cli.api().experiments.add_label(args.experiment_id, args.label)
    cli.render.done(f"Added label '{args.label}' to experiment {args.experiment_id}", labels=labels)


def remove_label(cli: Invocation, args: argparse.Namespace) -> None:
    labels = cli.api().experiments.remove_label(args.experiment_id, args.label)
    cli.render.done(f"Removed label '{args.label}' from experiment {args.experiment_id}", labels=labels)


# ----------------------------------------------------------------------------------------------------------- arguments


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="of every user, archived ones too")
    parser.add_argument("--show_project", action="store_true", help="show workspace and project")
    paging(parser)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    log_flags(parser)


def _trials_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    paging(parser)


def _checkpoints_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("--best", type=int, help="maximum number of trials, best first")


def _wait_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("--polling-interval", type=int, default=5, help="seconds between two polls (default 5)")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("--output-dir", default=".", help="where to put the file (default: here)")


def _download_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("-o", "--output-dir", default="checkpoints", help="where to put them (default: checkpoints)")
    parser.add_argument("--top-n", type=int, default=1, help="how many, best first (default 1)")
    parser.add_argument("--sort-by", help="metric by which they are ranked (default: the searcher's)")
    parser.add_argument("--smaller-is-better", type=boolean, help="whether smaller values are better")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the directories")


def _label_arguments(parser: argparse.ArgumentParser) -> None:
    experiment_id(parser)
    parser.add_argument("label", help="the label")


def _slots(text: str) -> int | None:
    return None if text == "none" else int(text)


_TABLE = ("json", "csv")

NOUN = Group(
    name="experiment",
    help="manage experiments",
    default="list",
    commands=(
        Command(name="create", help="create an experiment", run=create, arguments=create_arguments),
        Command(
            name="list",
            aliases=("ls",),
            help="list experiments",
            run=list_experiments,
            arguments=_list_arguments,
            formats=_TABLE,
        ),
        Command(
            name="describe",
            help="describe experiments",
            run=describe,
            arguments=describe_arguments,
            formats=_TABLE,
        ),
        Command(name="logs", help="show the log of an experiment's first trial", run=logs, arguments=_logs_arguments),
        Command(
            name="list-trials",
            aliases=("lt",),
            help="list the trials of an experiment",
            run=list_trials,
            arguments=_trials_arguments,
            formats=_TABLE,
        ),
        Command(
            name="explain-search",
            help="explain the progress of each trial of a search",
            run=explain,
            arguments=explain_arguments,
            formats=_TABLE,
        ),
        Command(
            name="list-checkpoints",
            aliases=("lc",),
            help="list the checkpoints of an experiment",
            run=list_checkpoints,
            arguments=_checkpoints_arguments,
            formats=_TABLE,
        ),
        Command(
            name="config",
            help="show the configuration of an experiment",
            run=config,
            arguments=experiment_id,
            formats=("json", "yaml"),
        ),
        act("activate", "unpause"),
        act("pause"),
        act("cancel"),
        act("kill"),
        act("archive"),
        act("unarchive"),
        Command(name="wait", help="wait for the end of an experiment", run=wait, arguments=_wait_arguments),
        Command(name="delete", help="delete an experiment", run=delete, arguments=_delete_arguments),
        Command(
            name="download-model-def",
            help="download the model definition of an experiment",
            run=download_model_definition,
            arguments=_model_arguments,
        ),
        Command(
            name="download",
            help="download the best checkpoints of an experiment",
            run=download_checkpoints,
            arguments=_download_arguments,
        ),
        Group(
            name="set",
            help="change an experiment",
            commands=(
                set_text("name"),
                set_text("description"),
                set_resource("priority", _priority, int),
                set_resource("weight", _weight, float),
                set_resource("max-slots", _max_slots, _slots),
                Command(
                    name="max-cost",
                    help="set the cost limit of an experiment",
                    run=set_max_cost,
                    arguments=_max_cost_arguments,
                ),
                *SETTINGS,
            ),
        ),
        MOVE,
        DELETE_TENSORBOARD_FILES,
        Group(
            name="label",
            help="change the labels of an experiment",
            commands=(
                Command(name="add", help="add a label to an experiment", run=add_label, arguments=_label_arguments),
                Command(
                    name="remove",
                    help="remove a label from an experiment",
                    run=remove_label,
                    arguments=_label_arguments,
                ),
            ),
        ),
    ),
)
