"""The victims' objects: ended, paused, running and unmanaged experiments with secrets, and their references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hostile.cluster import HostileCluster, Person
from resolute.wire.rest.passwords import hash_password
from support.live import client_of, until
from support.seeded_secrets import SecretSeeder

OVER_S = 180.0
OUTSIDE, FIRST = "outside", "first"


def a_config(seeder: SecretSeeder, name: str, *script: str, **changes: Any) -> dict[str, Any]:
    """Configuration of a victim, with secrets in every part that process tasks accept."""
    return {
        "name": name,
        "workspace": "w",
        "project": "p",
        "entrypoint": "python3 -m resolute.testing.scripted_trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": 1000000},
        "hyperparameters": {"script": list(script)},
        "resources": {"slots_per_trial": 1, "resource_pool": "default"},
        "max_restarts": 0,
        "data": {"path": "/d", "secrets": {"key": seeder.secret(f"data.secrets of {name}")}},
        "environment": {
            "environment_variables": [
                f"HF_TOKEN={seeder.secret(f'a variable with a known name of {name}')}",
                f"MYSTERY_NUMBER={seeder.secret(f'a variable with a name of the operator of {name}')}",
                f"PROXY=http://u:{seeder.secret(f'the password of an address of {name}')}@h",
                "PLAIN=is shown",
            ],
            "registry_auth": {"username": "u", "password": seeder.secret(f"registry_auth of {name}")},
        },
        **changes,
    }


def a_mallory_config(**changes: Any) -> dict[str, Any]:
    return {
        "name": "hostile",
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": 1},
        "resources": {"slots_per_trial": 1, "resource_pool": "tasks"},
        "max_restarts": 0,
        **changes,
    }


Parts = dict[str, tuple[str, ...]]
"""The values of each path parameter."""


def make_victims_work(cluster: HostileCluster, alice: Person) -> tuple[Parts, Parts, dict[str, int]]:
    """Values of path parameters: of all objects, and of objects that do not run; and the experiments by purpose."""
    seeder = cluster.seeder
    with client_of(cluster.url, cluster.directory / "alice", user="alice") as client:
        over = client.create_experiment(
            a_config(seeder, "over", "report 6 every 0.02s", "checkpoint every 3", "validate every 3")
        )
        until("the first experiment is over", lambda: _state(alice, over.id) == "STATE_COMPLETED", within_s=OVER_S)
        running = client.create_experiment(a_config(seeder, "running", "report 1000000 every 1s", "log 3 lines"))
        until("the second one runs", lambda: bool(cluster.tasks()), within_s=OVER_S)
        paused = client.create_experiment(a_config(seeder, "paused", "report 1"), activate=False)
    config = a_config(seeder, "outside")
    del config["entrypoint"]
    made = alice.call(
        "PUT", f"/api/v1/experiments/by-external-id/{OUTSIDE}", {"config": json.dumps(config), "unmanaged": True}
    )
    outside = int(made["experiment"]["id"])
    alice.call(
        "PUT",
        "/api/v1/trials",
        {"createTrialRequest": {"experimentId": outside, "unmanaged": True}, "externalTrialId": FIRST},
    )
    alice.call("PATCH", f"/api/v1/experiments/{over.id}", {"notes": "notes", "labels": ["kept"]})
    template = {"environment": a_config(seeder, "template")["environment"]}
    alice.call("POST", "/api/v1/templates/alice-s", {"config": template, "workspaceId": 1})
    ids = {"over": over.id, "running": running.id, "paused": paused.id, "outside": outside}
    still = _parts(alice, {name: id_ for name, id_ in ids.items() if name != "running"})
    return _parts(alice, ids), still, ids


def _state(person: Person, experiment: int) -> str:
    return str(person.call("GET", f"/api/v1/experiments/{experiment}")["experiment"]["state"])


def _parts(alice: Person, ids: Mapping[str, int]) -> Parts:
    shown = [alice.call("GET", f"/api/v1/experiments/{id_}")["experiment"] for id_ in ids.values()]
    trials = [
        trial for id_ in ids.values() for trial in alice.call("GET", f"/api/v1/experiments/{id_}/trials")["trials"]
    ]
    tasks = [str(trial["taskId"]) for trial in trials if trial.get("taskId")]
    allocations = [
        allocation["allocationId"]
        for task in tasks
        for allocation in alice.call("GET", f"/api/v1/tasks/{task}")["task"]["allocations"]
    ]
    agents = alice.call("GET", "/api/v1/agents")["agents"]
    resources = [container for agent in agents for container in agent["containers"]]
    checkpoints = alice.call("GET", f"/api/v1/experiments/{ids['over']}/checkpoints")["checkpoints"]
    assert tasks and allocations and resources and checkpoints, (tasks, allocations, resources, checkpoints)
    uuids = tuple(each["uuid"] for each in checkpoints)
    trial_ids = tuple(str(trial["id"]) for trial in trials)
    return {
        "experimentId": tuple(map(str, ids.values())),
        "trialId": trial_ids,
        "runId": trial_ids,
        "taskId": tuple(tasks),
        "allocationId": tuple(allocations),
        "resourcesId": tuple(resources),
        "jobId": tuple(each["jobId"] for each in shown if each.get("jobId")),
        "checkpointUuid": uuids,
        "uuid": uuids,
        "agentId": tuple(agent["id"] for agent in agents),
        "slotId": ("0",),
        "username": ("alice", "walter", "admin", "gone"),
        "poolName": ("default",),
        "resourcePoolName": ("default",),
        "templateName": ("alice-s",),
        "externalExperimentId": (OUTSIDE,),
        "externalTrialId": (FIRST,),
        "label": ("kept",),
    }


def bodies_about(parts: Mapping[str, tuple[str, ...]], workspace: int) -> Mapping[str, Any]:
    """Well-formed bodies that reference the victims' objects."""
    trial, experiment, uuid = int(parts["trialId"][0]), int(parts["experimentId"][0]), parts["uuid"][0]
    allocation, job, task = parts["allocationId"][-1], parts["jobId"][-1], parts["taskId"][-1]
    metrics = {"trialId": trial, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 0.0}}}
    report = {"uuid": uuid, "allocationId": allocation, "metadata": {"steps_completed": 9}, "resources": {"a": "1"}}
    line = {"taskId": task, "log": "forged"}
    unmanaged = {"experimentId": experiment, "unmanaged": True}
    config = json.dumps({**a_mallory_config(), "workspace": "w", "project": "p"})
    return {
        "POST /api/v1/auth/login": {"username": "alice", "password": "0" * 64, "isHashed": True},
        "POST /api/v1/experiments": {"config": config, "activate": False},
        "PUT /api/v1/experiments/by-external-id/{externalExperimentId}": {"config": config, "unmanaged": True},
        "PATCH /api/v1/experiments/{experimentId}": {"name": "taken", "notes": "taken", "resources": {"priority": 1}},
        "POST /api/v1/experiments/{experimentId}/move": {"destinationProjectId": 1},
        "POST /api/v1/trials/{trialId}/metrics": {"metrics": metrics, "group": "training"},
        "POST /api/v1/trials/{trialId}/progress": 0.5,
        "POST /api/v1/trials/{trialId}/early_exit": {"reason": "EXITED_REASON_USER_REQUESTED_STOP"},
        "POST /api/v1/trials/{trialId}/runner/metadata": {"state": "forged"},
        "POST /api/v1/trials": unmanaged,
        "PUT /api/v1/trials": {"createTrialRequest": unmanaged, "externalTrialId": FIRST},
        "PATCH /api/v1/trials/{trialId}": {"state": "STATE_ERROR"},
        "POST /api/v1/runs/start": {"runId": trial},
        "POST /api/v1/runs/{runId}/metadata": {"metadata": {"a": "forged"}},
        "POST /api/v1/task/logs": {"logs": [line]},
        "POST /task-logs": [line],
        "PUT /api/v1/experiments/{experimentId}/retain_logs": {"numDays": 0},
        "PUT /api/v1/trials/{trialId}/retain_logs": {"numDays": 0},
        "POST /api/v1/checkpoints": report,
        "PATCH /api/v1/checkpoints": {"checkpoints": [{"uuid": uuid, "resources": {"resources": {}}}]},
        "DELETE /api/v1/checkpoints": {"checkpointUuids": [uuid]},
        "POST /api/v1/checkpoints/rm": {"checkpointUuids": [uuid], "checkpointGlobs": ["**"]},
        "POST /api/v1/checkpoints/{checkpointUuid}/metadata": {"checkpoint": {"metadata": {"a": 1}}},
        "POST /api/v1/trial-source-info": {
            "trialSourceInfo": {
                "checkpointUuid": uuid,
                "trialId": trial,
                "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE",
            }
        },
        "POST /api/v1/allocations/{allocationId}/all_gather": {"requestUuid": uuid, "numPeers": 1, "data": {}},
        "POST /api/v1/agents/{agentId}/disable": {"drain": True},
        "POST /api/v1/resource-pools/{resourcePoolName}/workspace-bindings": {"workspaceIds": [workspace]},
        "PUT /api/v1/resource-pools/{resourcePoolName}/workspace-bindings": {"workspaceIds": [workspace]},
        "POST /api/v1/job-queues": {"updates": [{"jobId": job, "priority": 99}]},
        "POST /api/v1/users": {"user": {"username": "eve", "admin": True, "active": True}},
        "PATCH /api/v1/users/{userId}": {"admin": True, "displayName": "taken"},
        "POST /api/v1/users/{userId}/password": hash_password("taken"),
        "PATCH /api/v1/master/config": {"config": {"log": {"level": "debug"}}, "fieldMask": {"paths": ["log"]}},
        "PATCH /api/v1/workspaces/{id}": {"name": "taken"},
        "POST /api/v1/workspaces/{workspaceId}/projects": {"name": "mallory-s", "workspaceId": workspace},
        "POST /api/v1/templates/{templateName}": {"config": {}, "workspaceId": 1},
        "PUT /api/v1/templates/{templateName}": {"config": {}, "workspaceId": 1},
        "PATCH /api/v1/templates/{templateName}": {},
        "PATCH /api/v1/template/rename": {"oldName": "alice-s", "newName": "mallory-s"},
        "POST /api/v1/preview-hp-search": {"config": a_mallory_config(), "seed": 1},
        "PUT /api/v1/resource-pools/{poolName}/budget": {"budget": 0},
        "PUT /api/v1/workspaces/{id}/budget": {"budget": 0},
        "PUT /api/v1/experiments/{experimentId}/max_cost": {"maxCost": 0},
    }
