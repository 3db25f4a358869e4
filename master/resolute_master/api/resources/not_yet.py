"""Calls of the contract that this master does not serve yet, with an error that says so. Without them, the path of one call would
match the parameter of another: `POST /api/v1/experiments/continue` would be referred to the methods of
`/api/v1/experiments/{experimentId}`, and `GET /api/v1/tasks/count` that there is no task 'count'.
"""

from __future__ import annotations

from typing import NoReturn

from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.http.errors import NotServed

METHODS_BY_PATH = {
    "/api/v1/notebooks": "POST GET",
    "/api/v1/notebooks/{notebookId}": "GET",
    "/api/v1/notebooks/{notebookId}/kill": "POST",
    "/api/v1/notebooks/{notebookId}/set_priority": "POST",
    "/api/v1/notebooks/{notebookId}/report_idle": "PUT",
    "/api/v1/shells": "POST GET",
    "/api/v1/shells/{shellId}": "GET",
    "/api/v1/shells/{shellId}/kill": "POST",
    "/api/v1/shells/{shellId}/set_priority": "POST",
    "/api/v1/commands": "POST GET",
    "/api/v1/commands/{commandId}": "GET",
    "/api/v1/commands/{commandId}/kill": "POST",
    "/api/v1/commands/{commandId}/set_priority": "POST",
    "/api/v1/tensorboards": "POST GET",
    "/api/v1/tensorboards/{tensorboardId}": "GET",
    "/api/v1/tensorboards/{tensorboardId}/kill": "POST",
    "/api/v1/tensorboards/{tensorboardId}/set_priority": "POST",
    "/api/v1/generic-tasks": "POST",
    "/api/v1/tasks/{taskId}/kill": "POST",
    "/api/v1/tasks/{taskId}/pause": "POST",
    "/api/v1/tasks/{taskId}/unpause": "POST",
    "/api/v1/tasks/{taskId}/config": "GET",
    "/api/v1/tasks/count": "GET",
    "/api/v1/tasks/{taskId}/acceleratorData": "GET",
    "/api/v1/models": "GET POST",
    "/api/v1/models/{modelName}": "GET PATCH DELETE",
    "/api/v1/models/{modelName}/archive": "POST",
    "/api/v1/models/{modelName}/unarchive": "POST",
    "/api/v1/models/{modelName}/move": "POST",
    "/api/v1/models/{modelName}/versions": "GET POST",
    "/api/v1/models/{modelName}/versions/{modelVersionNum}": "GET PATCH DELETE",
    "/api/v1/model/labels": "GET",
    "/api/v1/models/{modelName}/versions/{modelVersionNum}/metrics": "GET",
    "/api/v1/workspaces/{workspaceId}/namespace-bindings": "POST DELETE",
    "/api/v1/workspaces/{id}/list-namespace-bindings": "GET",
    "/api/v1/workspaces/{id}/set-resource-quota": "POST",
    "/api/v1/roles/workspace/{workspaceId}": "GET",
    "/api/v1/users": "PATCH",
    "/api/v1/tokens": "POST GET",
    "/api/v1/tokens/{tokenId}": "PATCH",
    "/api/v1/groups/search": "POST",
    "/api/v1/groups/{groupId}": "GET PUT DELETE",
    "/api/v1/groups": "POST",
    "/api/v1/config-policies/workspaces/{workspaceId}/{workloadType}": "GET PUT DELETE",
    "/api/v1/config-policies/global/{workloadType}": "GET PUT DELETE",
    "/api/v1/master/cluster_message": "GET PUT DELETE",
    "/api/v1/webhooks/custom": "POST",
    "/api/v1/webhooks": "GET POST",
    "/api/v1/webhooks/{id}": "DELETE PATCH",
    "/api/v1/webhooks/{id}/test": "POST",
    "/api/v1/experiments/continue": "POST",
    "/api/v1/namespace-bindings/bulk-auto-create": "POST",
    "/api/v1/namespace-bindings/workspace-ids-with-default-bindings": "GET",
    "/api/v1/k8s-resource-managers": "GET",
    "/api/v1/workspaces/{id}/get-k8s-resource-quotas": "GET",
    "/api/v1/master/telemetry": "GET",
    "/api/v1/trials/{trainingMetrics_trialId}/training_metrics": "POST",
    "/api/v1/trials/{validationMetrics_trialId}/validation_metrics": "POST",
    "/api/v1/trials/{labels_trialId}/profiler/metrics": "GET",
    "/api/v1/trials/{trialId}/profiler/available_series": "GET",
    "/api/v1/trials/profiler/metrics": "POST",
    "/api/v1/resources/allocation/raw": "GET",
    "/api/v1/resources/allocation/aggregated": "GET",
    "/resources/allocation/raw": "GET",
    "/resources/allocation/aggregated": "GET",
    "/resources/allocation/allocations-csv": "GET",
}
"""Methods by path, without the calls of the original's enterprise edition: clients detect the edition by a 404."""


async def refuse(call: Call, _: None) -> NoReturn:
    raise NotServed(
        f"this version of the master does not serve {call.request.method} {call.request.path} yet; "
        "docs/differences.md has all that is not there"
    )


ROUTES = tuple(
    Route(method, path, Action.VIEW, nothing, refuse)
    for path, methods in METHODS_BY_PATH.items()
    for method in methods.split()
)
