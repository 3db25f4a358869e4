"""`det workspace`: where experiments belong."""

from __future__ import annotations

import argparse

from resolute.errors import NotFound
from resolute.wire.rest.enums import OrderBy, ProjectSortBy, WorkspaceSortBy
from resolute.wire.rest.workspaces import GetWorkspaceProjectsQuery, GetWorkspacesQuery
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation


def list_workspaces(cli: Invocation, args: argparse.Namespace) -> None:
    sort_by = WorkspaceSortBy.NAME if args.sort_by == "name" else WorkspaceSortBy.ID
    query = GetWorkspacesQuery(sort_by=sort_by, order_by=_direction(args), limit=args.limit, offset=args.offset)
    found = cli.api().cluster.workspaces(query)
    columns = ("ID", "Name", "# Projects", "Agent Uid", "Agent Gid", "Agent User", "Agent Group")
    rows = []
    for space in found:
        group = space.agent_user_group
        linked = (group.agent_uid, group.agent_gid, group.agent_user, group.agent_group) if group else (None,) * 4
        pools = (space.default_compute_pool, space.default_aux_pool)
        rows.append((space.id, space.name, space.num_projects, *linked, *pools))
    cli.render.table((*columns, "Default Compute Pool", "Default Aux Pool"), rows, found)


def list_projects(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    found = cluster.workspaces(GetWorkspacesQuery(name_case_sensitive=args.workspace_name))
    if not found:
        raise NotFound("workspace", args.workspace_name)
    sort_by = ProjectSortBy.NAME if args.sort_by == "name" else ProjectSortBy.ID
    query = GetWorkspaceProjectsQuery(sort_by=sort_by, order_by=_direction(args), limit=args.limit, offset=args.offset)
    projects = cluster.projects(found[0].id, query)
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


def _direction(args: argparse.Namespace) -> OrderBy:
    return OrderBy.DESC if args.order_by == "desc" else OrderBy.ASC


def _sorting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sort-by", choices=("id", "name"), default="id", help="what to sort by (default id)")
    parser.add_argument("--order-by", choices=("asc", "desc"), default="asc", help="direction (default asc)")
    parser.add_argument("--limit", type=int, default=200, help="most entries (default 200)")
    parser.add_argument("--offset", type=int, default=0, help="entries to skip (default 0)")


def _projects_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workspace_name", help="name of the workspace")
    _sorting(parser)


NOUN = Group(
    name="workspace",
    help="list workspaces",
    default="list",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list workspaces",
            run=list_workspaces,
            arguments=_sorting,
            formats=("json", "csv"),
        ),
        Command(
            name="list-projects",
            help="list the projects of a workspace",
            run=list_projects,
            arguments=_projects_arguments,
            formats=("json", "csv"),
        ),
    ),
)
