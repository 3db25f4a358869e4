"""`det workspace`: where experiments belong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from resolute.wire.rest.enums import OrderBy, ProjectSortBy, WorkspaceSortBy
from resolute.wire.rest.workspaces import (
    GetWorkspaceProjectsQuery,
    GetWorkspacesQuery,
    PatchWorkspace,
    PostWorkspaceRequest,
    Project,
    Workspace,
)
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.nouns.budget import SET_WORKSPACE_BUDGET
from resolute_cli.nouns.user import agent_user_arguments, agent_user_group
from resolute_cli.places import delete_place, yes_argument


def list_workspaces(cli: Invocation, args: argparse.Namespace) -> None:
    sort_by = WorkspaceSortBy.NAME if args.sort_by == "name" else WorkspaceSortBy.ID
    query = GetWorkspacesQuery(sort_by=sort_by, order_by=direction(args), limit=args.limit, offset=args.offset)
    _show(cli, cli.api().cluster.workspaces(query))


def _show(cli: Invocation, found: Sequence[Workspace]) -> None:
    columns = ("ID", "Name", "# Projects", "Agent Uid", "Agent Gid", "Agent User", "Agent Group")
    rows = []
    for space in found:
        group = space.agent_user_group
        linked = (group.agent_uid, group.agent_gid, group.agent_user, group.agent_group) if group else (None,) * 4
        pools = (space.default_compute_pool, space.default_aux_pool)
        rows.append((space.id, space.name, space.num_projects, *linked, *pools))
    cli.render.table((*columns, "Default Compute Pool", "Default Aux Pool"), rows, found)


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    _show(cli, [cli.api().cluster.workspace_named(args.workspace_name)])


def list_projects(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    workspace = cluster.workspace_named(args.workspace_name)
    sort_by = ProjectSortBy.NAME if args.sort_by == "name" else ProjectSortBy.ID
    query = GetWorkspaceProjectsQuery(sort_by=sort_by, order_by=direction(args), limit=args.limit, offset=args.offset)
    show_projects(cli, cluster.projects(workspace.id, query))


def show_projects(cli: Invocation, projects: Sequence[Project]) -> None:
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


def list_pools(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    pools = cluster.pools_of(cluster.workspace_named(args.workspace_name).id)
    columns = ("Workspace", "Available Resource Pools")
    cli.render.table(columns, [(args.workspace_name, ", ".join(pools))], pools)


def create(cli: Invocation, args: argparse.Namespace) -> None:
    request = PostWorkspaceRequest(
        name=args.name,
        default_compute_pool=args.default_compute_pool,
        default_aux_pool=args.default_aux_pool,
        agent_user_group=agent_user_group(args),
    )
    _show(cli, [cli.api().cluster.create_workspace(request)])


def edit(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    change = PatchWorkspace(
        name=args.name,
        default_compute_resource_pool=args.default_compute_pool,
        default_aux_resource_pool=args.default_aux_pool,
        agent_user_group=agent_user_group(args),
    )
    _show(cli, [cluster.patch_workspace(cluster.workspace_named(args.workspace_name).id, change)])


def _archive(verb: str, past: str) -> Command:
    def run(cli: Invocation, args: argparse.Namespace) -> None:
        cluster = cli.api().cluster
        workspace = cluster.workspace_named(args.workspace_name)
        cluster.act_on_workspace(workspace.id, verb)
        cli.render.done(f"{past} workspace '{workspace.name}'", id=workspace.id, action=verb)

    return Command(name=verb, help=f"{verb} a workspace with its projects", run=run, arguments=workspace_argument)


def delete(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = cli.api().cluster
    workspace = cluster.workspace_named(args.workspace_name)
    called = f"workspace '{workspace.name}'"
    delete_place(cli, args, workspace, called, delete=cluster.delete_workspace, read=cluster.workspace)


def direction(args: argparse.Namespace) -> OrderBy:
    return OrderBy.DESC if args.order_by == "desc" else OrderBy.ASC


def sorting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sort-by", choices=("id", "name"), default="id", help="sort key (default id)")
    parser.add_argument("--order-by", choices=("asc", "desc"), default="asc", help="direction (default asc)")
    parser.add_argument("--limit", type=int, default=200, help="maximum number of entries (default 200)")
    parser.add_argument("--offset", type=int, default=0, help="entries to skip (default 0)")


def projects_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workspace_name", help="name of the workspace")
    sorting(parser)


def workspace_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workspace_name", help="name of the workspace")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    workspace_argument(parser)
    yes_argument(parser)


def _default_pools(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--default-compute-pool", help="default pool of tasks with slots; empty: the cluster's")
    parser.add_argument("--default-aux-pool", help="default pool of tasks without slots; empty: the cluster's")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the workspace, unique in the cluster")
    _default_pools(parser)
    agent_user_arguments(parser)


def _edit_arguments(parser: argparse.ArgumentParser) -> None:
    workspace_argument(parser)
    parser.add_argument("--name", help="its new name")
    _default_pools(parser)
    agent_user_arguments(parser)


NOUN = Group(
    name="workspace",
    help="manage workspaces",
    default="list",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list workspaces",
            run=list_workspaces,
            arguments=sorting,
            formats=("json", "csv"),
        ),
        Command(name="create", help="create a workspace", run=create, arguments=_create_arguments),
        Command(
            name="edit",
            help="rename a workspace, or set its pools and the account of its tasks",
            run=edit,
            arguments=_edit_arguments,
        ),
        SET_WORKSPACE_BUDGET,
        Command(name="describe", help="show a workspace", run=describe, arguments=workspace_argument),
        _archive("archive", "Archived"),
        _archive("unarchive", "Unarchived"),
        Command(
            name="delete",
            help="delete a workspace with all of its projects and experiments",
            run=delete,
            arguments=_delete_arguments,
        ),
        Command(
            name="list-pools",
            help="list the resource pools that a workspace may use",
            run=list_pools,
            arguments=workspace_argument,
        ),
        Command(
            name="list-projects",
            help="list the projects of a workspace",
            run=list_projects,
            arguments=projects_arguments,
            formats=("json", "csv"),
        ),
    ),
)
