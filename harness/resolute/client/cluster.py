"""The master itself, its machines, its ledger and its decisions. Modules that only some calls need are imported by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resolute.client.paging import segment
from resolute.client.session import NO_RETRY, Session
from resolute.errors import NotFound
from resolute.wire.codec import from_wire
from resolute.wire.rest.info import Info

if TYPE_CHECKING:
    from resolute.wire.rest.costs import Budget, BudgetState, GetCostQuery, GetCostResponse
    from resolute.wire.rest.enums import LogLevel
    from resolute.wire.rest.extensions import (
        Decision,
        GetLedgerResponse,
        Instance,
    )
    from resolute.wire.rest.logs import LogsQuery, TaskLogsResponse
    from resolute.wire.rest.master import GetMasterResponse, LogEntry, MasterLogsQuery
    from resolute.wire.rest.search import SearchSummary
    from resolute.wire.rest.workspaces import (
        GetWorkspaceProjectsQuery,
        GetWorkspacesQuery,
        PatchProject,
        PatchWorkspace,
        PostProjectRequest,
        PostWorkspaceRequest,
        Project,
        Workspace,
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Calls about the cluster as a whole."""

    session: Session

    def info(self) -> Info:
        """The master at this address; fetched once, without a login."""
        return from_wire(Info, self.session.request("GET", "info", retry=NO_RETRY))

    def master(self) -> GetMasterResponse:
        from resolute.wire.rest.master import GetMasterResponse

        return self.session.get("api/v1/master", GetMasterResponse)

    def config(self) -> Mapping[str, Any]:
        """The effective configuration of the master, secrets masked."""
        from resolute.wire.rest.master import GetMasterConfigResponse

        return self.session.get("api/v1/master/config", GetMasterConfigResponse).config

    def logs(self, query: MasterLogsQuery) -> Iterator[LogEntry]:
        from resolute.wire.rest.master import MasterLogsResponse

        for item in self.session.stream("api/v1/master/logs", MasterLogsResponse, query):
            yield item.log_entry

    def set_log(self, *, level: LogLevel | None, color: bool | None) -> None:
        """Changes the log settings of the master until its next start. None leaves a setting unchanged."""
        from resolute.wire.rest.empty import Empty
        from resolute.wire.rest.master import Config, LogConfig, PatchMasterConfigRequest, protobufFieldMask

        given = {"log.level": level, "log.color": color}
        request = PatchMasterConfigRequest(
            config=Config(log=LogConfig(level=level, color=bool(color))),
            field_mask=protobufFieldMask(paths=tuple(path for path, value in given.items() if value is not None)),
        )
        self.session.patch("api/v1/master/config", Empty, request)

    def clean_up_logs(self) -> int:
        """Removes logs whose retention has ended; returns the number of lines."""
        from resolute.wire.rest.logs import CleanupLogsResponse

        return self.session.post("api/v1/cleanup_logs", CleanupLogsResponse).removed_count

    def task_logs(self, task_id: str, query: LogsQuery) -> Iterator[TaskLogsResponse]:
        from resolute.wire.rest.logs import TaskLogsResponse

        yield from self.session.stream(f"api/v1/tasks/{segment(task_id)}/logs", TaskLogsResponse, query)

    def preview_search(
        self, config: Mapping[str, Any], seed: int = 0, *, seconds_per_unit: float | None = None
    ) -> SearchSummary | None:
        """The trials, duration and cost that the search of an experiment's configuration would have."""
        from resolute.wire.rest.search import PreviewHPSearchRequest, PreviewHPSearchResponse

        request = PreviewHPSearchRequest(config=config, seed=seed, forecast=True, seconds_per_unit=seconds_per_unit)
        return self.session.post("api/v1/preview-hp-search", PreviewHPSearchResponse, request).summary

    def instances(self) -> tuple[Instance, ...]:
        """Every machine in the master's records, oldest first."""
        from resolute.wire.rest.extensions import GetInstancesResponse

        return self.session.get("api/v1/instances", GetInstancesResponse).instances

    def ledger(self) -> GetLedgerResponse:
        """The ledger: what the paid time was spent on."""
        from resolute.wire.rest.extensions import GetLedgerResponse

        return self.session.get("api/v1/ledger", GetLedgerResponse)

    def cost(self, query: GetCostQuery) -> GetCostResponse:
        """The cost of the paid time, by owner."""
        from resolute.wire.rest.costs import GetCostResponse

        return self.session.get("api/v1/cost", GetCostResponse, query)

    def budgets(self) -> tuple[BudgetState, ...]:
        """The spending of pools and workspaces, and their limits."""
        from resolute.wire.rest.costs import GetBudgetsResponse

        return self.session.get("api/v1/budgets", GetBudgetsResponse).budgets

    def set_pool_budget(self, pool: str, budget: Budget) -> BudgetState:
        from resolute.wire.rest.costs import BudgetState

        return self.session.put(f"api/v1/resource-pools/{segment(pool)}/budget", BudgetState, budget)

    def set_workspace_budget(self, workspace_id: int, budget: Budget) -> BudgetState:
        from resolute.wire.rest.costs import BudgetState

        return self.session.put(f"api/v1/workspaces/{workspace_id}/budget", BudgetState, budget)

    def decisions(self, limit: int = 0) -> tuple[Decision, ...]:
        """The last decisions of scheduler and provisioner, oldest first; 0 returns all that are in memory."""
        from resolute.wire.rest.extensions import GetDecisionsQuery, GetDecisionsResponse

        return self.session.get("api/v1/decisions", GetDecisionsResponse, GetDecisionsQuery(limit=limit)).decisions

    def workspaces(self, query: GetWorkspacesQuery | None = None) -> tuple[Workspace, ...]:
        from resolute.wire.rest.workspaces import GetWorkspacesQuery, GetWorkspacesResponse

        asked = query or GetWorkspacesQuery()
        return self.session.get("api/v1/workspaces", GetWorkspacesResponse, asked).workspaces

    def workspace_named(self, name: str) -> Workspace:
        """Raises `NotFound`."""
        from resolute.wire.rest.workspaces import GetWorkspacesQuery

        found = self.workspaces(GetWorkspacesQuery(name_case_sensitive=name))
        if not found:
            raise NotFound("workspace", name)
        return found[0]

    def create_workspace(self, request: PostWorkspaceRequest) -> Workspace:
        from resolute.wire.rest.workspaces import PostWorkspaceResponse

        return self.session.post("api/v1/workspaces", PostWorkspaceResponse, request).workspace

    def patch_workspace(self, workspace_id: int, change: PatchWorkspace) -> Workspace:
        from resolute.wire.rest.workspaces import PatchWorkspaceResponse

        return self.session.patch(f"api/v1/workspaces/{workspace_id}", PatchWorkspaceResponse, change).workspace

    def workspace(self, workspace_id: int) -> Workspace:
        """Raises `NotFound`, also for one that is deleted."""
        from resolute.wire.rest.workspaces import GetWorkspaceResponse

        return self.session.get(f"api/v1/workspaces/{workspace_id}", GetWorkspaceResponse).workspace

    def act_on_workspace(self, workspace_id: int, verb: str) -> None:
        """`archive`, `unarchive`, `pin` or `unpin`."""
        from resolute.wire.rest.empty import Empty

        self.session.post(f"api/v1/workspaces/{workspace_id}/{verb}", Empty)

    def delete_workspace(self, workspace_id: int) -> bool:
        """Whether it is gone already; else it is being deleted."""
        from resolute.wire.rest.workspaces import DeleteWorkspaceResponse

        return self.session.delete(f"api/v1/workspaces/{workspace_id}", DeleteWorkspaceResponse).completed

    def create_project(self, request: PostProjectRequest) -> Project:
        from resolute.wire.rest.workspaces import PostProjectResponse

        path = f"api/v1/workspaces/{request.workspace_id}/projects"
        return self.session.post(path, PostProjectResponse, request).project

    def project(self, project_id: int) -> Project:
        """Raises `NotFound`, also for one that is deleted."""
        from resolute.wire.rest.workspaces import GetProjectResponse

        return self.session.get(f"api/v1/projects/{project_id}", GetProjectResponse).project

    def project_named(self, workspace: str, name: str) -> Project:
        """Raises `NotFound` for either."""
        from resolute.wire.rest.workspaces import GetWorkspaceProjectsQuery

        query = GetWorkspaceProjectsQuery(name=name)
        found = next(
            (each for each in self.projects(self.workspace_named(workspace).id, query) if each.name == name), None
        )
        if found is None:
            raise NotFound("project", name, f"workspace '{workspace}' has none of that name")
        return found

    def patch_project(self, project_id: int, change: PatchProject) -> Project:
        from resolute.wire.rest.workspaces import PatchProjectResponse

        return self.session.patch(f"api/v1/projects/{project_id}", PatchProjectResponse, change).project

    def act_on_project(self, project_id: int, verb: str) -> None:
        """`archive` or `unarchive`."""
        from resolute.wire.rest.empty import Empty

        self.session.post(f"api/v1/projects/{project_id}/{verb}", Empty)

    def move_project(self, project_id: int, workspace_id: int) -> None:
        from resolute.wire.rest.empty import Empty
        from resolute.wire.rest.workspaces import MoveProjectRequest

        request = MoveProjectRequest(project_id=project_id, destination_workspace_id=workspace_id)
        self.session.post(f"api/v1/projects/{project_id}/move", Empty, request)

    def delete_project(self, project_id: int) -> bool:
        """Whether it is gone already; else it is being deleted."""
        from resolute.wire.rest.workspaces import DeleteProjectResponse

        return self.session.delete(f"api/v1/projects/{project_id}", DeleteProjectResponse).completed

    def pools_of(self, workspace_id: int) -> tuple[str, ...]:
        """Names of the pools that the workspace may use."""
        from resolute.wire.rest.pools import ListRPsBoundToWorkspaceResponse

        path = f"api/v1/workspaces/{workspace_id}/available-resource-pools"
        return self.session.get(path, ListRPsBoundToWorkspaceResponse).resource_pools

    def projects(self, workspace_id: int, query: GetWorkspaceProjectsQuery | None = None) -> tuple[Project, ...]:
        from resolute.wire.rest.workspaces import GetWorkspaceProjectsQuery, GetWorkspaceProjectsResponse

        asked = query or GetWorkspaceProjectsQuery()
        path = f"api/v1/workspaces/{workspace_id}/projects"
        return self.session.get(path, GetWorkspaceProjectsResponse, asked).projects
