"""The configuration of a master that was deployed on Google Cloud is one that a master takes."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config.master import parse_master_config
from resolute_deploy.master_config import SHARED_FILES, checked_master_config

DIRECTORY = "/var/lib/resolute-deploy"


def facts(**changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "format": 1,
        "cloud": "gcp",
        "cluster_id": "vision",
        "port": 8443,
        "database": {
            **{"host": "10.0.128.3", "port": 5432, "name": "resolute", "user": "resolute", "ssl_mode": "require"},
            **{
                "password_secret": "projects/p/secrets/db",
                "instance": "resolute-vision-260101",
                "project": "vision-123",
            },
        },
        "bucket": "resolute-vision-0a1b2c3d",
        "environment": {},
        "scheduler": {"type": "fair_share", "preemption": False},
        "container_runtime": "docker",
        "task_images": None,
        "shared_file_system": None,
        "agents": {
            "project": "vision-123",
            "zones": ["us-west1-a", "us-west1-b"],
            "network": "projects/vision-123/global/networks/resolute-vision",
            "subnetwork": "projects/vision-123/regions/us-west1/subnetworks/resolute-vision",
            "external_ip": True,
            "account": "det-vision-agent@vision-123.iam.gserviceaccount.com",
            "name_prefix": "resolute-vision--",
            "label": {"key": "resolute-deployment", "value": "vision"},
            **{"disk_size": 200, "disk_type": "pd-balanced", "operation_timeout": "5m"},
            **{"min": 0, "max": 5, "max_aux": 16, "idle": "10m", "starting": "20m"},
        },
        "pools": {"compute": pool(instance_types=["g2-standard-8"]), "aux": pool(instance_types=["e2-standard-4"])},
    }
    return {**told, **changes}


def pool(**changes: Any) -> dict[str, Any]:
    image = "projects/p/global/images/family/f"
    return {"image": image, "gpu_type": "nvidia-tesla-t4", "gpu_num": 0, "spot": False, **changes}


def compute(**changes: Any) -> dict[str, Any]:
    return facts(pools={**facts()["pools"], "compute": pool(**changes)})


def config(told: dict[str, Any]) -> dict[str, Any]:
    return checked_master_config({"facts": told, "addresses": ["203.0.113.7"]}, directory=DIRECTORY)


def provider(told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config(told)["resource_pools"][1]["provider"]
    return found


@pytest.mark.parametrize(
    "told",
    [
        facts(),
        facts(container_runtime="process"),
        facts(environment={"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9000"}),
        facts(shared_file_system={"type": "nfs", "source": "10.0.0.2:/shared_fs", "options": "rw"}),
        compute(instance_types=["n1-standard-8", "g2-standard-8"], gpu_num=4, spot=True),
        compute(instance_types=["n1-standard-8"], gpu_num=0),
    ],
)
def test_a_master_takes_it(told: dict[str, Any]) -> None:
    read = parse_master_config(config(told))
    assert [pool.pool_name for pool in read.resource_pools] == ["aux-pool", "compute-pool"]
    assert read.security.tls.enabled


def test_checkpoints_are_in_their_folder_of_the_bucket() -> None:
    """To which the rights of agents are bound."""
    assert config(facts())["checkpoint_storage"] == {
        "type": "gcs",
        "bucket": "resolute-vision-0a1b2c3d",
        "prefix": "checkpoints",
    }


def test_machines_have_the_names_that_the_rights_of_the_master_are_bound_to() -> None:
    told = provider(facts())
    assert told["name_prefix"] == "resolute-vision--"
    assert (told["label_key"], told["label_value"]) == ("resolute-deployment", "vision")


def test_gpus_are_attached_to_the_types_that_take_them() -> None:
    told = provider(compute(instance_types=["n1-standard-8", "g2-standard-8"], gpu_num=4, spot=True))
    markets = ["spot", "on_demand"]
    assert told["offers"] == [
        {"instance_types": ["n1-standard-8"], "gpu_type": "nvidia-tesla-t4", "gpu_num": 4, "markets": markets},
        {"instance_types": ["g2-standard-8"], "markets": markets},
    ]


def test_agents_mount_the_shared_file_system_and_tasks_see_it() -> None:
    told = facts(shared_file_system={"type": "nfs", "source": "10.0.0.2:/shared_fs", "options": "rw"})
    assert f"mount -t nfs -o rw 10.0.0.2:/shared_fs {SHARED_FILES}" in provider(told)["startup_script"]
    mounts = config(told)["task_container_defaults"]["bind_mounts"]
    assert mounts == [{"host_path": SHARED_FILES, "container_path": "shared_fs"}]


def test_containers_get_the_gpus_of_their_machine() -> None:
    assert "nvidia-ctk runtime configure" in provider(facts())["startup_script"]
    assert "startup_script" not in provider(facts(container_runtime="process"))
