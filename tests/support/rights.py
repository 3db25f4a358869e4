"""A cluster with work, and every call of the API by every caller in the table of `resolute_master.api.rights`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.wire.rest.passwords import hash_password
from resolute_master.api.rights import Role, Row
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.ids import UserId
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from support.api import PASSWORD, World, a_config, an_api

UUID = "00000000-0000-4000-8000-000000000001"
AGENT_CREDENTIAL = "rsl-agent-credential-of-a-machine"
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Ada's experiment runs in her project of Walter's workspace; Carol's, submitted before, runs beside it. Bob has nothing."""

    world: World
    trial: Trial
    allocation: Allocation
    carol_job: str
    workspace: int
    project: int
    callers: Mapping[Role, dict[str, str]]
    """Credential of each caller: `token` or `task` of `World.send`."""

    async def status(self, row: Row, role: Role) -> int:
        """Response to the call of a row by one caller."""
        key = f"{row.call}, {row.when}" if row.when else row.call
        method, path = row.method, self._path(row, role)
        options: dict[str, Any] = {"token": "", **self.callers[role]}
        body = self._bodies(role).get(key)
        response = await self.world.send(
            method, path + QUERIES.get(row.call, "").format(**self._parts(role)), body, **options
        )
        async with response:
            await response.read()
        return response.status

    def _path(self, row: Row, role: Role) -> str:
        place = "workspace" if row.path.startswith("/api/v1/workspaces") else "project"
        parts = self._parts(role) | {"id": self._parts(role)[place]}
        if row.method in ("POST", "PUT") and not row.when:
            parts["templateName"] = f"of {role}"  # each creates its own
        return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], row.path)

    def _parts(self, role: Role) -> dict[str, str]:
        """Values of path parameters. A missing parameter fails the test of its route."""
        ada = next(user for user in self.world.users() if user.username == "ada")
        numbers = {
            "experimentId": self.trial.experiment_id,
            "trialId": self.trial.id,
            "runId": self.trial.id,
            "userId": ada.id,
            "workspaceId": self.workspace,
            "workspace": self.workspace,
            "project": self.project,
            "projectId": self.project,
            "slotId": 0,
        }
        return {key: str(value) for key, value in numbers.items()} | {
            "allocationId": self.allocation.id,
            "resourcesId": self.allocation.containers[0].id,
            "taskId": self.trial.task_id,
            "jobId": self.trial.job_id,
            "checkpointUuid": UUID,
            "uuid": UUID,
            "agentId": "agent-1",
            "username": "ada",
            "poolName": "default",
            "resourcePoolName": "default",
            "templateName": "ada-s",
            "externalExperimentId": "outside",
            "externalTrialId": "first",
            "label": "new",
            "key": "UNCAT",
        }

    def _bodies(self, role: Role) -> Mapping[str, Any]:
        """Bodies of calls that reference an object in the body, or whose permission depends on it."""
        trial, experiment, job = self.trial.id, self.trial.experiment_id, self.trial.job_id
        report = {"uuid": UUID, "allocationId": self.allocation.id, "metadata": {"steps_completed": 1}, "resources": {}}
        account = {"agentUid": 1001, "agentUser": "ada", "agentGid": 1001, "agentGroup": "ada"}
        line = {"taskId": self.trial.task_id, "log": "a line"}
        unmanaged = {"experimentId": experiment, "unmanaged": True}
        template = {"config": {}, "workspaceId": 1}
        priority = "with `resources.priority` or `resources.weight`"
        patch = "PATCH /api/v1/experiments/{experimentId}"
        return {
            "POST /api/v1/auth/login": {"username": "ada", "password": hash_password(PASSWORD), "isHashed": True},
            "POST /api/v1/experiments": {"config": str(a_config()), "activate": False},
            f"{patch}, {priority}": {"resources": {"priority": 90}},
            f"{patch}, with a priority ahead of others' work": {"resources": {"priority": 1}},
            "POST /api/v1/experiments/{experimentId}/move": {"destinationProjectId": self.project},
            "POST /api/v1/trials": unmanaged,
            "PUT /api/v1/trials": {"createTrialRequest": unmanaged},
            "POST /api/v1/runs/start": {"runId": trial},
            "POST /api/v1/task/logs": {"logs": [line]},
            "POST /task-logs": [line],
            "POST /api/v1/checkpoints": report,
            "PATCH /api/v1/checkpoints": {"checkpoints": [{"uuid": UUID}]},
            "DELETE /api/v1/checkpoints": {"checkpointUuids": [UUID]},
            "POST /api/v1/checkpoints/rm": {"checkpointUuids": [UUID], "checkpointGlobs": ["*.txt"]},
            "POST /api/v1/trial-source-info": {
                "trialSourceInfo": {
                    "checkpointUuid": UUID,
                    "trialId": trial,
                    "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE",
                }
            },
            "POST /api/v1/job-queues": {"updates": [{"jobId": job, "weight": 2.0}]},
            "POST /api/v1/job-queues, ahead of others' work": {"updates": [{"jobId": job, "aheadOf": self.carol_job}]},
            "PATCH /api/v1/users/{userId}": {"displayName": "Ada"},
            "PATCH /api/v1/users/{userId}, with `admin`, `active` or another `username`": {"active": True},
            "PATCH /api/v1/users/{userId}, with `agentUserGroup`": {"agentUserGroup": account},
            "POST /api/v1/workspaces, with `agentUserGroup`": {"name": f"of {role}", "agentUserGroup": account},
            "PATCH /api/v1/workspaces/{id}, with `agentUserGroup`": {"agentUserGroup": account},
            "POST /api/v1/users/{userId}/password": hash_password(PASSWORD),
            "PUT /api/v1/templates/{templateName}": template,
            "PUT /api/v1/templates/{templateName}, of one that is there": template,
            "PATCH /api/v1/template/rename": {"oldName": "ada-s", "newName": "ada-s"},
            "PUT /api/v1/projects/{projectId}/notes": {"notes": [], "projectId": self.project},
            "POST /api/v1/projects/{projectId}/notes": {"name": "n", "contents": "c"},
            "POST /api/v1/projects/{projectId}/move": {"projectId": self.project, "destinationWorkspaceId": 1},
            "POST /api/v1/workspaces/{workspaceId}/projects": {"name": f"of {role}", "workspaceId": self.workspace},
        }


QUERIES: Mapping[str, str] = {
    "GET /api/v1/trials/metrics/trial_metrics": "?trialIds={trialId}&group=validation",
    "GET /api/v1/trials/metrics/training_metrics": "?trialIds={trialId}",
    "GET /api/v1/trials/metrics/validation_metrics": "?trialIds={trialId}",
    "GET /api/v1/allocations/{allocationId}/signals/preemption": "?timeoutSeconds=0",
}


@asynccontextmanager
async def a_scene(storage: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with an_api(storage, **settings) as world:
        for name in ("walter", "carol"):
            hashed = await world.context.passwords.hash(hash_password(PASSWORD))
            await world.engine.submit(CreateUser(username=name, password_hash=hashed))
        tokens = {name: await world.login(name) for name in ("root", "ada", "bob", "walter", "carol")}
        ids = {user.username: user.id for user in world.users()}
        made = await world.post("/api/v1/workspaces", {"name": "w"}, token=tokens["walter"])
        workspace = made["workspace"]["id"]
        made = await world.post(
            f"/api/v1/workspaces/{workspace}/projects", {"name": "p", "workspaceId": workspace}, token=tokens["ada"]
        )
        agent = await world.agent(slots=3)
        _, _, ended = await world.started(agent)
        await agent.run_all()
        world.token = tokens["carol"]
        carol_trial, carol_allocation, _ = await world.started(agent)
        world.token = tokens["ada"]
        trial, allocation, own = await world.started(agent, workspace="w", project="p")
        await _ada_s_things(world, allocation, own)
        issue = world.context.tokens
        callers = {
            Role.UNAUTHENTICATED: {},
            Role.AGENT: {"token": AGENT_CREDENTIAL},
            Role.ENDED_TASK: {"task": ended},
            Role.OTHER_TASK: {"task": issue.issue_allocation(carol_allocation.id, ids["carol"])},
            Role.OWN_TASK: {"task": own},
            Role.OTHER: {"token": tokens["bob"]},
            Role.OWNER: {"token": tokens["ada"]},
            Role.WORKSPACE_OWNER: {"token": tokens["walter"]},
            Role.ADMINISTRATOR: {"token": tokens["root"]},
            Role.ADMINISTRATOR_IN_TASK: {"token": issue.issue_task_user(allocation.id, UserId(ids["root"]))},
        }
        yield Scene(
            world=world,
            trial=trial,
            allocation=allocation,
            carol_job=_job(world, carol_trial),
            workspace=workspace,
            project=made["project"]["id"],
            callers=callers,
        )


async def _ada_s_things(world: World, allocation: Allocation, own: str) -> None:
    """A checkpoint, a template, and an unmanaged experiment."""
    report = {"uuid": UUID, "allocationId": allocation.id, "metadata": {"steps_completed": 1}, "resources": {"a": "1"}}
    await world.post("/api/v1/checkpoints", report, task=own, token="")
    await world.post("/api/v1/templates/ada-s", {"config": {}, "workspaceId": 1})
    config = a_config()
    del config["entrypoint"]
    body = {"config": str(config), "unmanaged": True}
    made = await world.call("PUT", "/api/v1/experiments/by-external-id/outside", body)
    trial = {"experimentId": made["experiment"]["id"], "unmanaged": True}
    await world.call("PUT", "/api/v1/trials", {"createTrialRequest": trial, "externalTrialId": "first"})


def _job(world: World, trial: Trial) -> str:
    job = world.engine.state.get(Job, trial.job_id)
    assert job is not None and not job.ended
    return job.id
