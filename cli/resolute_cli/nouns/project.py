"""`det project`: parts of a workspace."""

from __future__ import annotations

import argparse

from resolute.wire.rest.workspaces import PostProjectRequest
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.nouns.workspace import list_projects, projects_arguments, show_projects, workspace_argument


def create_project(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    workspace = cluster.workspace_named(args.workspace_name)
    request = PostProjectRequest(name=args.name, workspace_id=workspace.id, description=args.description, key=args.key)
    show_projects(cli, [cluster.create_project(request)])


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
            name="list",
            aliases=("ls",),
            help="list the projects of a workspace",
            run=list_projects,
            arguments=projects_arguments,
            formats=("json", "csv"),
        ),
    ),
)
