"""Pools on a cloud in the contract's list of pools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resolute_master.pools.policies import pool_policies
from support.api import a_config, an_api, master_config

POOLS: dict[str, Any] = {
    "resource_pools": [
        {
            "pool_name": "default",
            "shared_file_system": True,
            "provider": {
                "type": "aws",
                "ssh_key_name": "ops",
                "region": "us-east-1",
                "startup_script": "export KEY=secret",
                "agent_docker_image": "agents/ours",
                "custom_tags": [{"key": "team", "value": "vision"}],
                "network_interface": {"subnets": {"us-east-1a": "s-a", "us-east-1b": "s-b"}},
                "offers": [{"instance_types": ["g5.xlarge", "g5.12xlarge"], "markets": ["spot", "on_demand"]}],
            },
        },
        {
            "pool_name": "google",
            "shared_file_system": True,
            "provider": {
                "type": "gcp",
                "project": "p",
                "zone": "us-central1-a",
                "instance_type": {"machine_type": "n1-standard-8", "gpu_num": 2, "preemptible": True},
            },
        },
        {"pool_name": "own"},
    ],
}


async def test_what_their_provider_says_is_in_the_list_of_pools(tmp_path: Path) -> None:
    pools = pool_policies(master_config(tmp_path, **POOLS))
    async with an_api(tmp_path, pools=pools, config=POOLS) as world:
        listed = (await world.get("/api/v1/resource-pools"))["resourcePools"]
    aws, google, own = (pool for _, pool in sorted((pool["name"], pool) for pool in listed))
    assert (aws["type"], google["type"], own["type"]) == (
        "RESOURCE_POOL_TYPE_AWS",
        "RESOURCE_POOL_TYPE_GCP",
        "RESOURCE_POOL_TYPE_STATIC",
    )
    assert (aws["instanceType"], aws["location"]) == ("g5.12xlarge, g5.xlarge", "us-east-1a, us-east-1b")
    assert (aws["slotType"], aws["slotsPerAgent"], aws["preemptible"]) == ("TYPE_CUDA", 4, True)
    assert (aws["accelerator"], aws["agentDockerImage"], aws["startupScript"]) == ("A10G", "agents/ours", "********")
    assert aws["details"]["aws"]["customTags"] == [{"key": "team", "value": "vision"}]
    assert (aws["details"]["aws"]["spotEnabled"], aws["details"]["gcp"]) == (True, None)
    assert (google["preemptible"], google["details"]["gcp"]["gpuNum"]) == (True, 2)
    assert google["details"]["gcp"]["gpuType"] == "nvidia-tesla-t4"
    assert (own["slotType"], own["slotsPerAgent"], own["instanceType"]) == ("TYPE_UNSPECIFIED", -1, "")
    assert "secret" not in str(listed)


async def test_an_experiment_does_not_keep_its_checkpoints_on_machines_that_are_rented(tmp_path: Path) -> None:
    rented = {**POOLS["resource_pools"][0], "shared_file_system": False}
    config: dict[str, Any] = {
        "resource_pools": [rented, {"pool_name": "own"}],
        "checkpoint_storage": {"type": "s3", "bucket": "b"},
    }
    pools = pool_policies(master_config(tmp_path, **config))
    on_disk = {"type": "directory", "container_path": str(tmp_path)}
    async with an_api(tmp_path, pools=pools, config=config) as world:
        body = {"config": json.dumps(a_config(checkpoint_storage=on_disk))}
        said = await world.error("POST", "/api/v1/experiments", body, status=400)
        assert "checkpoint_storage.type: pool 'default' rents its machines" in said and "shared_file_system" in said
        assert (await world.get("/api/v1/experiments"))["experiments"] == []
        await world.create(
            a_config(checkpoint_storage=on_disk, resources={"resource_pool": "own", "slots_per_trial": 0})
        )
        await world.create(a_config())


async def test_a_job_does_not_move_to_a_pool_that_ends_with_its_checkpoints(tmp_path: Path) -> None:
    rented = {**POOLS["resource_pools"][0], "shared_file_system": False}
    shared = {**POOLS["resource_pools"][0], "pool_name": "shared"}
    config: dict[str, Any] = {
        "resource_pools": [rented, shared, {"pool_name": "own"}],
        "checkpoint_storage": {"type": "s3", "bucket": "b"},
    }
    pools = pool_policies(master_config(tmp_path, **config))
    on_disk = {"type": "directory", "container_path": str(tmp_path)}
    own = {"resource_pool": "own", "slots_per_trial": 0}
    async with an_api(tmp_path, pools=pools, config=config) as world:
        job = (await world.create(a_config(checkpoint_storage=on_disk, resources=own)))["jobId"]
        in_bucket = (await world.create(a_config(resources=own)))["jobId"]
        to_rented = {"updates": [{"jobId": job, "resourcePool": "default"}]}
        said = await world.error("POST", "/api/v1/job-queues", to_rented, status=400)
        assert "checkpoint_storage.type: pool 'default' rents its machines" in said and "shared_file_system" in said
        jobs = (await world.get("/api/v1/job-queues-v2"))["jobs"]
        assert {each["full"]["resourcePool"] for each in jobs} == {"own"}
        for moved, pool in ((job, "shared"), (in_bucket, "default")):
            await world.post("/api/v1/job-queues", {"updates": [{"jobId": moved, "resourcePool": pool}]})
