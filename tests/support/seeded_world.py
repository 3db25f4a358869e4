"""A cluster with a secret in every secret field of its configurations, for tests that search for them in responses."""

from __future__ import annotations

import re
from typing import Any

from resolute.config import ExperimentConfig
from resolute.config.masking import secrets_of
from resolute.config.yaml_text import dump_yaml
from resolute_master.domain.commands import CreateExperiment
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, PoolName
from support.api import World
from support.seeded_secrets import SecretSeeder, over

UUID = "00000000-0000-4000-8000-000000000001"

MASTER = {
    "security": {"initial_user_password": "{0}", "seal": {"key": "ab" * 32}},
    "observability": {"metrics_token": "{1}"},
    "webhooks": {"signing_key": "{2}"},
    "telemetry": {"segment_master_key": "{3}", "segment_webui_key": "{4}", "otel_endpoint": "https://u:{5}@h:1"},
    "task_container_defaults": {
        "registry_auth": {"password": "{6}", "auth": "{7}", "identitytoken": "{8}", "registrytoken": "{9}"},
        "environment_variables": ["CLUSTER_TOKEN={10}", "no_proxy=x"],
    },
    "db": {"type": "postgres", "user": "u", "host": "h", "name": "n", "password": "{11}"},
}


def filled(value: Any, seeder: SecretSeeder) -> Any:
    if isinstance(value, dict):
        return {key: filled(inner, seeder) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, seeder) for inner in value]
    return re.sub(r"\{\d+\}", lambda _: seeder.secret("master"), value) if isinstance(value, str) else value


async def seeded_world(world: World, seeder: SecretSeeder) -> tuple[dict[str, str], str]:
    """Values of path parameters, and the token of the experiment's task."""
    agent = await world.agent()
    trial, allocation, task = await world.started(agent)
    await put_secrets(world, seeder, trial.experiment_id)
    report = {
        "uuid": UUID,
        "allocationId": allocation.id,
        "resources": {"state": "10"},
        "metadata": {"steps_completed": 1},
        "state": "STATE_COMPLETED",
    }
    await world.post("/api/v1/checkpoints", report, task=task)
    whole = seeder.block(secrets_of(ExperimentConfig))
    template = {key: whole[key] for key in ("data", "environment")}
    template["checkpoint_storage"] = {
        "type": "s3",
        "bucket": "b",
        "access_key": seeder.secret("template"),
        "secret_key": seeder.secret("template"),
    }
    await world.post("/api/v1/templates/t", {"config": template, "workspaceId": 1})
    user = world.owner_id
    return {
        "experimentId": str(trial.experiment_id),
        "trialId": str(trial.id),
        "runId": str(trial.id),
        "taskId": trial.task_id,
        "allocationId": allocation.id,
        "resourcesId": allocation.containers[0].id,
        "agentId": "agent-1",
        "slotId": "0",
        "checkpointUuid": UUID,
        "uuid": UUID,
        "resourcePoolName": "default",
        "poolName": "default",
        "jobId": next(iter(world.engine.state.all(Experiment))).job_id,
        "userId": str(user),
        "username": "ada",
        "id": "1",
        "workspaceId": "1",
        "templateName": "t",
    }, task


async def put_secrets(world: World, seeder: SecretSeeder, id_: ExperimentId) -> None:
    """Adds keys to the stored configuration of an experiment: an older database may contain keys that calls refuse today."""
    before = world.engine.state.get(Experiment, id_)
    assert before is not None
    config = over(before.config, seeder.block(secrets_of(ExperimentConfig)))
    await world.engine.submit(
        CreateExperiment(
            owner=before.owner,
            config=config,
            original_config=f"# {seeder.secret('a comment')}\n{dump_yaml(config)}",
            context_hash="",
            pool=PoolName("default"),
            priority=42,
            weight=1.0,
            max_slots=None,
            seed=1,
            activate=True,
            workspace_id=1,
            project_id=1,
        )
    )
