"""The job queue and the resource pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from resolute.client.paging import all_pages, segment
from resolute.client.session import Retry, Session
from resolute.wire.rest.advice import GetPoolAdviceResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.jobs import GetJobsQuery, GetJobsV2Response, QueueControl, RBACJob, UpdateJobQueueRequest
from resolute.wire.rest.offers import GetPoolOffersResponse
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.pools import (
    BindRPToWorkspaceRequest,
    GetResourcePoolsResponse,
    ListWorkspacesBoundToRPResponse,
    OverwriteRPWorkspaceBindingsRequest,
    ResourcePool,
    UnbindRPFromWorkspaceRequest,
)
from resolute.wire.rest.why import ExplainJobResponse, GetPoolStartsQuery, GetPoolStartsResponse


@dataclass(frozen=True, slots=True)
class Queue:
    """Calls about waiting and running jobs."""

    session: Session

    def page(self, query: GetJobsQuery) -> GetJobsV2Response:
        """One page of jobs."""
        return self.session.get("api/v1/job-queues-v2", GetJobsV2Response, query)

    def list(self, query: GetJobsQuery) -> tuple[RBACJob, ...]:
        """Jobs from the query's offset on. The query's limit is the size of the pages."""

        def fetch(offset: int) -> tuple[tuple[RBACJob, ...], Pagination]:
            answer = self.page(replace(query, offset=offset))
            return answer.jobs, answer.pagination

        return tuple(all_pages(fetch, query.offset))

    def update(self, *changes: QueueControl) -> None:
        self.session.post("api/v1/job-queues", Empty, UpdateJobQueueRequest(updates=changes))

    def explain(self, job_id: str) -> ExplainJobResponse:
        """The reason for the state of the job."""
        return self.session.get(f"api/v1/jobs/{segment(job_id)}/explain", ExplainJobResponse)

    def starts(self, pool: str, *job_ids: str, retry: Retry | None = None) -> GetPoolStartsResponse:
        """Expected starts of the pending jobs of the pool; with `job_ids` of these only."""
        path, query = f"api/v1/resource-pools/{segment(pool)}/starts", GetPoolStartsQuery(job_ids=job_ids)
        return self.session.get(path, GetPoolStartsResponse, query, retry=retry)

    def snapshot(self, pool: str) -> dict[str, Any]:
        """The scheduler's snapshot of a pool, as the JSON object of a snapshot file."""
        snapshot: dict[str, Any] = self.session.request("GET", f"api/v1/resource-pools/{segment(pool)}/snapshot")
        return snapshot

    def offers(self, pool: str) -> GetPoolOffersResponse:
        """The offers of an elastic pool, in the order in which it would try them."""
        return self.session.get(f"api/v1/resource-pools/{segment(pool)}/offers", GetPoolOffersResponse)

    def advice(self, pool: str) -> GetPoolAdviceResponse:
        """The savings by changes of an elastic pool's settings. Waits some seconds while they are computed."""
        return self.session.get(f"api/v1/resource-pools/{segment(pool)}/advice", GetPoolAdviceResponse)

    def pools(self) -> tuple[ResourcePool, ...]:
        return self.session.get("api/v1/resource-pools", GetResourcePoolsResponse).resource_pools

    def workspaces_of(self, pool: str) -> tuple[int, ...]:
        """Ids of the workspaces that the pool is for; none when it accepts all."""
        return self.session.get(_bindings(pool), ListWorkspacesBoundToRPResponse).workspace_ids

    def bind(self, pool: str, workspaces: Sequence[str]) -> None:
        """Add these workspaces to a bound pool."""
        body = BindRPToWorkspaceRequest(resource_pool_name=pool, workspace_names=tuple(workspaces))
        self.session.post(_bindings(pool), Empty, body)

    def unbind(self, pool: str, workspaces: Sequence[str]) -> None:
        """Remove these workspaces from a bound pool. Without any, it accepts all workspaces."""
        body = UnbindRPFromWorkspaceRequest(resource_pool_name=pool, workspace_names=tuple(workspaces))
        self.session.delete(_bindings(pool), Empty, body)

    def rebind(self, pool: str, workspaces: Sequence[str]) -> None:
        """Let these workspaces use the pool, and no other."""
        body = OverwriteRPWorkspaceBindingsRequest(resource_pool_name=pool, workspace_names=tuple(workspaces))
        self.session.put(_bindings(pool), Empty, body)


def _bindings(pool: str) -> str:
    return f"api/v1/resource-pools/{segment(pool)}/workspace-bindings"
