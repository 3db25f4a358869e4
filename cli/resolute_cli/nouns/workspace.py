"""`det workspace`: where experiments belong."""

from __future__ import annotations

import argparse

from resolute.errors import NotFound
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation


def list_workspaces(cli: Invocation, args: argparse.Namespace) -> None:
    found = cli.api().cluster.workspaces()
    columns = ("ID", "Name", "# Projects", "Agent Uid", "Agent Gid", "Agent User", "Agent Group")
    rows = []
    for space in found:
        group = space.agent_user_group
        linked = (group.agent_uid, group.agent_gid, group.agent_user, group.agent_group) if group else (None,) * 4
        pools = (space.default_compute_pool, space.default_aux_pool)
        rows.append((space.id, space.name, space.num_projects, *linked, *pools))
    cli.render.table((*columns, "Default Compute Pool", "Default Aux Pool"), rows, found)


def list_projects(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.workspaces import GetWorkspacesQuery

    cluster = cli.api().cluster
    found = cluster.workspaces(GetWorkspacesQuery(name_case_sensitive=args.workspace_name))
    if not found:
        raise NotFound("workspace", args.workspace_name)
    projects = cluster.projects(found[0].id)
    rows = [
        (
            project.id,
            project.key,
            project.name,
            project.description,
            project.num_experiments,
            project.num_active_experiments,
        )
        for project in projects
    ]
    columns = ("ID", "Key", "Name", "Description", "# Experiments", "# Active Experiments")
    cli.render.table(columns, rows, projects)


NOUN = Group(
    name="workspace",
    help="list workspaces",
    default="list",
    commands=(
        Command(name="list", aliases=("ls",), help="list workspaces", run=list_workspaces, formats=("json", "csv")),
        Command(
            name="list-projects",
            help="list the projects of a workspace",
            run=list_projects,
            arguments=lambda p: p.add_argument("workspace_name", help="name of the workspace"),
            formats=("json", "csv"),
        ),
    ),
)
