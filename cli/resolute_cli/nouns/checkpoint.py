"""`det checkpoint`: saved states of trials."""

from __future__ import annotations

import argparse
from pathlib import Path

from resolute.wire.rest.checkpoints import Checkpoint, GetCheckpointsQuery
from resolute.wire.rest.enums import CheckpointSortBy, WireCheckpointState
from resolute.wire.rest.experiments import GetExperimentsQuery
from resolute_cli.checkpoint_tables import checkpoint_record, checkpoint_table, download
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.render import confirmed, size_text


def list_checkpoints(cli: Invocation, args: argparse.Namespace) -> None:
    """Prints the checkpoints of one experiment or of all of them, newest experiment last."""
    api = cli.api()
    states = () if args.all else (WireCheckpointState.COMPLETED,)
    query = GetCheckpointsQuery(sort_by_attr=CheckpointSortBy.END_TIME, states=states)
    if args.experiment_id is not None:
        ids = [args.experiment_id]
    else:
        ids = sorted(experiment.id for experiment in api.experiments.list(GetExperimentsQuery(limit=200)))
    found: list[Checkpoint] = []
    for experiment_id in ids:
        found.extend(api.experiments.checkpoints(experiment_id, query))
    checkpoint_table(cli, found)


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    checkpoint_record(cli, cli.api().checkpoints.get(args.uuid))


def fetch(cli: Invocation, args: argparse.Namespace) -> None:
    target = Path(args.output_dir) if args.output_dir else Path("checkpoints", args.uuid)
    download(cli, args.uuid, target, args.mode, quiet=args.quiet)


def delete(cli: Invocation, args: argparse.Namespace) -> None:
    uuids = tuple(uuid.strip() for uuid in args.uuids.split(",") if uuid.strip())
    api = cli.api()
    if not args.yes and not confirmed(f"Delete {len(uuids)} checkpoint(s) for good?", cli.render, cli.stdin):
        cli.render.done("Nothing was deleted", deleted=[])
        return
    api.checkpoints.delete(uuids)
    cli.render.done(f"Deletion of {', '.join(uuids)} is in progress", deleted=list(uuids))


def remove_files(cli: Invocation, args: argparse.Namespace) -> None:
    uuids = tuple(uuid.strip() for uuid in args.uuids.split(",") if uuid.strip())
    api, globs = cli.api(), tuple(args.globs)
    if globs and not args.yes:
        question = f"Remove the files that match {', '.join(globs)} from {len(uuids)} checkpoint(s) for good?"
        if not confirmed(question, cli.render, cli.stdin):
            cli.render.done("Nothing was removed", removed=[])
            return
    api.checkpoints.remove_files(uuids, globs)
    what = f"Removal of {', '.join(globs)} from" if globs else "The update of the list of files of"
    cli.render.done(f"{what} {', '.join(uuids)} is in progress", checkpoints=list(uuids), globs=list(globs))


def verify(cli: Invocation, args: argparse.Namespace) -> None:
    with cli.render.progress(f"Verifying {args.uuid}") as progress:
        found = cli.api().checkpoints.verify(args.uuid, progress=progress)
    how = "sizes and hashes" if found.hashes else "sizes, for it has no manifest"
    cli.render.done(
        f"Checkpoint {args.uuid} is as it was saved: {found.files} file(s), {size_text(found.bytes)}, compared by {how}",
        uuid=found.uuid,
        files=found.files,
        bytes=found.bytes,
        hashes=found.hashes,
    )


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=int, nargs="?", help="only of this experiment")
    parser.add_argument("-a", "--all", action="store_true", help="deleted and failed ones too")


def _download_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uuid", help="id of the checkpoint")
    parser.add_argument("-o", "--output-dir", help="where to put the files (default: checkpoints/<uuid>)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the directory")
    parser.add_argument(
        "--mode",
        choices=("direct", "master", "auto"),
        default="auto",
        help="copy from the storage, fetch through the master, or try one after the other (default)",
    )


def _rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uuids", help="ids of the checkpoints, with commas between them")
    parser.add_argument(
        "--glob",
        dest="globs",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATTERN",
        help="patterns of the files to remove; without one, the list of files is updated",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uuids", help="ids of the checkpoints, with commas between them")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


NOUN = Group(
    name="checkpoint",
    help="manage checkpoints",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list checkpoints",
            run=list_checkpoints,
            arguments=_list_arguments,
            formats=("json", "csv"),
        ),
        Command(
            name="describe",
            help="describe a checkpoint",
            run=describe,
            arguments=lambda p: p.add_argument("uuid", help="id of the checkpoint"),
            formats=("json", "csv"),
        ),
        Command(name="download", help="download a checkpoint", run=fetch, arguments=_download_arguments),
        Command(
            name="verify",
            help="compare the files of a checkpoint with its manifest",
            run=verify,
            arguments=lambda p: p.add_argument("uuid", help="id of the checkpoint"),
        ),
        Command(name="rm", help="remove files of checkpoints", run=remove_files, arguments=_rm_arguments),
        Command(name="delete", help="delete checkpoints", run=delete, arguments=_delete_arguments),
    ),
)
