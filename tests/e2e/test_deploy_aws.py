"""`det deploy aws` from nothing to nothing: Terraform with the real provider makes a cluster on moto, the master's machine
boots with the very user data, its master buys machines from the same moto, a training saves to the bucket, and `down` leaves
nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.deployed_aws import DeployWorld, deploy_world
from support.det import Det
from support.live import until

pytestmark = [
    pytest.mark.needs("machines"),
    pytest.mark.needs("terraform"),
    pytest.mark.needs("postgres"),
    pytest.mark.timeout(1200),  # the provider waits ten seconds for many a resource, whatever answers
]

SCRIPT = """
import resolute.core

with resolute.core.init() as core:
    for step in range(1, 4):
        core.train.report_validation_metrics(step, {"loss": 1 / step})
    with core.checkpoint.store_path({"steps_completed": 3}) as (path, _):
        (path / "weights").write_text("saved")
"""
CONFIG = {
    "name": "first",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
    "resources": {"slots_per_trial": 1},
    "max_restarts": 0,
}


@dataclass
class Story:
    """What a person saw, in order."""

    world: DeployWorld
    made: dict[str, Any]
    certificate: str
    status: dict[str, Any]
    again: str
    experiment: dict[str, Any]
    objects: list[str]
    down: str
    left: list[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with deploy_world(tmp_path_factory.mktemp("deploy")) as world:
        try:
            yield told(world)
        except BaseException:
            for machine in world.bridge.machines.values():
                print(machine.log()[-3000:])
                for log in sorted((machine.directory / "lib" / "resolute-deploy").glob("*.log")):
                    print(f"== {log.name}\n{log.read_text()[-6000:]}")
            raise


def told(world: DeployWorld) -> Story:
    made = made_by(world)
    status = json.loads(world.deploy("status", "--cluster-id", "vision", "--json"))
    (master,) = [each for name, each in world.bridge.machines.items() if name == status["machine"]]
    det = Det(world.directory / "person", master=f"https://{master.address}:8443")
    certificate = Path(made["certificate"]).read_text()
    variables = {"DET_MASTER_CERT_FILE": made["certificate"], "DET_USER": "determined", "DET_PASS": made["password"]}
    det.environ |= variables
    code = world.directory / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "first.yaml").write_text(json.dumps(CONFIG))
    det.run("experiment", "create", str(code / "first.yaml"), str(code), "-f", within_s=300)
    experiment = json.loads(det("experiment", "describe", "1", "--json"))
    bucket = world.account.client("s3").list_objects_v2(Bucket=status["bucket"], Prefix="checkpoints/")
    again = world.deploy("up", "--cluster-id", "vision", "--dry-run")
    until("the pool has shrunk to nothing", lambda: len(world.bridge.living()) == 1, within_s=120)
    down = world.deploy("down", "--cluster-id", "vision", "--delete-checkpoints", "--yes")
    return Story(
        world=world,
        made=made,
        certificate=certificate,
        status=status,
        again=again,
        experiment=experiment,
        objects=[each["Key"] for each in bucket.get("Contents", ())],
        down=down,
        left=remaining(world),
    )


def made_by(world: DeployWorld) -> dict[str, Any]:
    text = world.deploy("up", *world.flags, "--json")
    made: dict[str, Any] = json.loads(text[text.index("{\n") : text.rindex("}") + 1])
    return made


def remaining(world: DeployWorld) -> list[str]:
    """By name, whatever its tags say: all that the account holds and did not hold before."""
    client = world.account.client
    alive = [
        each["InstanceId"]
        for group in client("ec2").describe_instances()["Reservations"]
        for each in group["Instances"]
        if each["State"]["Name"] != "terminated"
    ]
    networks = [each["VpcId"] for each in client("ec2").describe_vpcs()["Vpcs"] if not each["IsDefault"]]
    buckets = [each["Name"] for each in client("s3").list_buckets()["Buckets"]]
    secrets = [
        each["Name"] for each in client("secretsmanager").list_secrets()["SecretList"] if each["Name"] != "database"
    ]
    roles = [each["RoleName"] for each in client("iam").list_roles()["Roles"]]
    addresses = [each["PublicIp"] for each in client("ec2").describe_addresses()["Addresses"]]
    return alive + networks + buckets + secrets + roles + addresses


def test_up_brings_a_master_that_serves_and_says_how_to_use_it(story: Story) -> None:
    assert story.made["master_url"].startswith("https://")
    assert story.certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert [each["stage"] for each in story.made["stages"]][:3] == ["packages", "python", "wheel"]


def test_an_experiment_is_trained_on_a_machine_that_the_master_bought(story: Story) -> None:
    assert story.experiment["experiment"]["state"].endswith("COMPLETED")
    assert len(story.world.bridge.machines) == 2


def test_its_checkpoint_is_in_the_bucket(story: Story) -> None:
    assert [key for key in story.objects if key.endswith("/weights")]


def test_a_second_up_changes_nothing(story: Story) -> None:
    assert "Nothing would change" in story.again


def test_down_leaves_nothing(story: Story) -> None:
    assert "nothing else of it is left" in story.down
    assert story.left == []
