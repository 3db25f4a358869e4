"""The configuration of a deployed master is one that a master takes."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config.master import parse_master_config
from resolute.errors import InvalidInput
from resolute_deploy.master_config import SHARED_FILES, checked_master_config, master_config

DIRECTORY = "/var/lib/resolute-deploy"
FILES = {"type": "nfs4", "source": "fs-0a.efs.us-east-1.amazonaws.com:/", "options": "nfsvers=4.1"}


def facts(**changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "format": 1,
        "cloud": "aws",
        "cluster_id": "vision",
        "port": 8443,
        "database": {
            **{"host": "db.example.org", "port": 5432, "name": "resolute", "user": "resolute", "ssl_mode": "require"},
            "password_secret": "arn:aws:secretsmanager:us-east-1:111122223333:secret:db",
        },
        "bucket": "resolute-vision-111122223333-us-east-1",
        "endpoint_url": None,
        "scheduler": {"type": "fair_share", "preemption": False},
        "container_runtime": "docker",
        "task_images": None,
        "shared_file_system": None,
        "agents": {
            "region": "us-east-1",
            "subnets": {"us-east-1a": "subnet-0a", "us-east-1b": "subnet-0b"},
            "security_group_id": "sg-0a",
            "public_ip": True,
            "instance_profile_arn": "arn:aws:iam::111122223333:instance-profile/agent",
            "keypair": "ops",
            "tag": {"key": "resolute-deployment", "value": "vision"},
            **{"disk_size": 200, "min": 0, "max": 5, "max_aux": 16, "idle": "10m", "starting": "20m"},
        },
        "pools": {
            "compute": {"instance_types": ["g5.xlarge"], "image_id": "ami-0a", "spot": False, "spot_max_price": None},
            "aux": {"instance_types": ["m5.xlarge"], "image_id": "ami-0b", "spot": False, "spot_max_price": None},
        },
    }
    return {**told, **changes}


def compute(**changes: Any) -> dict[str, Any]:
    pools = facts()["pools"]
    return facts(pools={**pools, "compute": {**pools["compute"], **changes}})


def provider(told: dict[str, Any]) -> dict[str, Any]:
    config = checked_master_config({"facts": told, "addresses": ["203.0.113.7"]}, directory=DIRECTORY)
    found: dict[str, Any] = config["resource_pools"][1]["provider"]
    return found


@pytest.mark.parametrize(
    "told",
    [
        facts(),
        facts(scheduler={"type": "priority", "preemption": True}),
        facts(task_images={"cpu": "example.org/cpu:1", "cuda": "example.org/cuda:1"}),
        facts(shared_file_system=FILES),
        facts(endpoint_url="http://127.0.0.1:5000"),
        facts(container_runtime="process"),
        compute(spot=True),
        compute(spot=True, spot_max_price=0.5),
    ],
)
def test_a_master_takes_it(told: dict[str, Any]) -> None:
    config = checked_master_config({"facts": told, "addresses": ["203.0.113.7"]}, directory=DIRECTORY)
    read = parse_master_config(config)
    assert [pool.pool_name for pool in read.resource_pools] == ["aux-pool", "compute-pool"]
    assert read.security.tls.enabled and read.security.tls.names == ("203.0.113.7",)


def test_no_secret_stands_in_it() -> None:
    """The password of the database comes from the file that PGPASSFILE names, the key from a file."""
    config = master_config(facts(), directory=DIRECTORY, addresses=())
    assert config["db"]["password"] == ""
    assert config["security"]["seal"] == {"key_file": f"{DIRECTORY}/seal.key"}


def test_machines_carry_the_tag_that_the_rights_of_the_master_are_bound_to() -> None:
    told = provider(facts())
    assert (told["tag_key"], told["tag_value"]) == ("resolute-deployment", "vision")


def test_a_limit_of_the_spot_price_leaves_on_demand_to_be_had() -> None:
    offers = provider(compute(spot=True, spot_max_price=0.5))["offers"]
    assert offers == [
        {"instance_types": ["g5.xlarge"], "markets": ["spot"], "max_price": 0.5},
        {"instance_types": ["g5.xlarge"], "markets": ["on_demand"]},
    ]


def test_agents_mount_the_shared_file_system_and_tasks_see_it() -> None:
    told = facts(shared_file_system=FILES)
    assert f"fs-0a.efs.us-east-1.amazonaws.com:/ {SHARED_FILES}" in provider(told)["startup_script"]
    config = master_config(told, directory=DIRECTORY, addresses=())
    mounts = config["task_container_defaults"]["bind_mounts"]
    assert mounts == [{"host_path": SHARED_FILES, "container_path": "shared_fs"}]


def test_facts_of_a_later_version_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the format 2, and this version reads 1"):
        master_config(facts(format=2), directory=DIRECTORY, addresses=())
