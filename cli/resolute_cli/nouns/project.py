"""`det project`: parts of a workspace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resolute.wire.rest.workspaces import PatchProject, PostProjectRequest
from resolute_cli.command import Command, Group
from resolute_cli.experiment_tables import experiment_columns, experiment_row
from resolute_cli.invocation import Invocation
from resolute_cli.nouns.workspace import (
    direction,
    list_projects,
    projects_arguments,
    show_projects,
    sorting,
    workspace_argument,
)
from resolute_cli.places import delete_place, yes_argument

if TYPE_CHECKING:
    from resolute.wire.rest.workspaces import Project


def create_project(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    workspace = cluster.workspace_named(args.workspace_name)
    request = PostProjectRequest(name=args.name, workspace_id=workspace.id, description=args.description, key=args.key)
    show_projects(cli, [cluster.create_project(request)])


def _named(cli: Invocation, args: argparse.Namespace) -> Project:
    return cli.api().cluster.project_named(args.workspace_name, args.project_name)


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    project = _named(cli, args)
    show_projects(cli, [project])
    if cli.render.format is None:
        for note in project.notes:
            cli.render.line("")
            cli.render.line(f"{note.name or 'Note'}:")
            for line in note.contents.splitlines():
                cli.render.line(f"  {line}")
        cli.render.line("")
        cli.render.line("Experiments:")
        _show_experiments(cli, args, project)


def list_experiments(cli: Invocation, args: argparse.Namespace) -> None:
    _show_experiments(cli, args, _named(cli, args))


def _show_experiments(cli: Invocation, args: argparse.Namespace, project: Project) -> None:
    from resolute.wire.rest.enums import ExperimentSortBy
    from resolute.wire.rest.experiments import GetExperimentsQuery

    api = cli.api()
    query = GetExperimentsQuery(
        project_id=project.id,
        limit=args.limit,
        offset=args.offset,
        archived=None if args.all else False,
        users=() if args.all else (api.users.me().username,),
        sort_by=ExperimentSortBy.NAME if args.sort_by == "name" else ExperimentSortBy.ID,
        order_by=direction(args),
    )
    found = api.experiments.page(query).experiments
    rows = [experiment_row(one, show_project=False, show_archived=args.all) for one in found]
    cli.render.table(experiment_columns(show_project=False, show_archived=args.all), rows, found)


def edit(cli: Invocation, args: argparse.Namespace) -> None:
    change = PatchProject(name=args.new_name, description=args.description, key=args.key)
    show_projects(cli, [cli.api().cluster.patch_project(_named(cli, args).id, change)])


def _archive(verb: str, past: str) -> Command:
    def run(cli: Invocation, args: argparse.Namespace) -> None:
        project = _named(cli, args)
        cli.api().cluster.act_on_project(project.id, verb)
        cli.render.done(f"{past} {_called(args, project)}", id=project.id, action=verb)

    return Command(name=verb, help=f"{verb} a project", run=run, arguments=_project_arguments)


def move(cli: Invocation, args: argparse.Namespace) -> None:
    project, cluster = _named(cli, args), cli.api().cluster
    workspace = cluster.workspace_named(args.destination)
    cluster.move_project(project.id, workspace.id)
    text = f"Moved project '{project.name}' to workspace '{workspace.name}'"
    cli.render.done(text, id=project.id, workspace=workspace.name)


def delete(cli: Invocation, args: argparse.Namespace) -> None:
    project, cluster = _named(cli, args), cli.api().cluster
    called = _called(args, project)
    delete_place(cli, args, project, called, delete=cluster.delete_project, read=cluster.project)


def _called(args: argparse.Namespace, project: Project) -> str:
    return f"project '{project.name}' of workspace '{args.workspace_name}'"


# ----------------------------------------------------------------------------------------------------------- arguments


def _project_arguments(parser: argparse.ArgumentParser) -> None:
    workspace_argument(parser)
    parser.add_argument("project_name", help="name of the project")


def _experiments_arguments(parser: argparse.ArgumentParser) -> None:
    _project_arguments(parser)
    parser.add_argument("-a", "--all", action="store_true", help="of every user, archived ones too")
    sorting(parser)


def _edit_arguments(parser: argparse.ArgumentParser) -> None:
    _project_arguments(parser)
    parser.add_argument("--new_name", help="its new name")
    parser.add_argument("--description", help="its new description")
    parser.add_argument("--key", help="its new short name, up to five letters and digits")


def _move_arguments(parser: argparse.ArgumentParser) -> None:
    _project_arguments(parser)
    parser.add_argument("destination", metavar="destination_workspace_name", help="new workspace of the project")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _project_arguments(parser)
    yes_argument(parser)


def _create_project_arguments(parser: argparse.ArgumentParser) -> None:
    workspace_argument(parser)
    parser.add_argument("name", help="name of the project, unique in the workspace")
    parser.add_argument("--description", help="its description")
    parser.add_argument("--key", help="its short name, up to five letters and digits; else made from the name")


NOUN = Group(
    name="project",
    help="manage projects",
    commands=(
        Command(
            name="create",
            help="create a project in a workspace",
            run=create_project,
            arguments=_create_project_arguments,
        ),
        Command(
            name="describe",
            help="show a project, its notes and its experiments",
            run=describe,
            arguments=_experiments_arguments,
        ),
        Command(
            name="list-experiments",
            help="list the experiments of a project",
            run=list_experiments,
            arguments=_experiments_arguments,
            formats=("json", "csv"),
        ),
        Command(
            name="edit", help="change the name, description or key of a project", run=edit, arguments=_edit_arguments
        ),
        _archive("archive", "Archived"),
        _archive("unarchive", "Unarchived"),
        Command(
            name="move",
            help="move a project with its experiments to another workspace",
            run=move,
            arguments=_move_arguments,
        ),
        Command(
            name="delete",
            help="delete a project with all of its experiments",
            run=delete,
            arguments=_delete_arguments,
        ),
        Command(
            name="list",
            aliases=("ls",),
            help="list the projects of a workspace",
            run=list_projects,
            arguments=projects_arguments,
            formats=("json", "csv"),
        ),
    ),
)
