"""From a pool's configuration to what EC2 and its machines are told; what is left out is asked of the master's own machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from resolute.config import MasterConfig, parse_master_config
from resolute.errors import InvalidInput
from resolute_master.pools.clouds import check, completed
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.clouds.aws.configuration import AwsProvider
from resolute_provisioner.clouds.aws.driver import aws_settings
from resolute_provisioner.clouds.aws.request import AwsSettings
from resolute_provisioner.clouds.machine_host import reachable_master
from support.imds import imds

WHEEL = AgentWheel(name="resolute_ml-1.0-py3-none-any.whl", sha256="0f" * 32)
LEAST = {"type": "aws", "ssh_key_name": "key", "image_id": "ami-1", "instance_type": "g5.xlarge"}
HERE = {
    "/latest/dynamic/instance-identity/document": '{"region": "eu-west-1", "instanceId": "i-master"}',
    "/latest/meta-data/instance-id": "i-master",
    "/latest/meta-data/local-ipv4": "10.0.0.7",
    "/latest/meta-data/public-hostname": "ec2-1-2-3-4.example",
}
ROLE = "arn:aws:iam::111122223333:instance-profile/agents"


def metadata_at(url: str) -> dict[str, str]:
    """The environment of a master whose metadata service is there."""
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url}


NOWHERE = metadata_at("http://127.0.0.1:9")


def a_config(**keys: Any) -> MasterConfig:
    return parse_master_config(
        {
            "host": "0.0.0.0",
            "security": {"initial_user_password": "p"},
            "checkpoint_storage": {"type": "s3", "bucket": "checkpoints"},
            "resource_pools": [{"pool_name": "gpus", "provider": {**LEAST, **keys}}],
            "resource_manager": {
                "type": "agent",
                "default_aux_resource_pool": "gpus",
                "default_compute_resource_pool": "gpus",
            },
        }
    )


def provider_of(config: MasterConfig) -> AwsProvider:
    provider = config.resource_pools[0].provider
    assert isinstance(provider, AwsProvider)
    return provider


def settings(**keys: Any) -> AwsSettings:
    config = a_config(region="us-east-1", master_url="http://10.0.0.1:8080", **keys)
    return aws_settings(config.resource_pools[0], provider_of(config), WHEEL)


def test_a_master_on_ec2_knows_region_address_and_owner() -> None:
    with imds() as service:
        service.values |= HERE
        provider = provider_of(completed(a_config(), metadata_at(service.url)))
    assert (provider.region, provider.tag_value) == ("eu-west-1", "i-master")
    assert provider.master_url == f"http://10.0.0.7:{a_config().port}"


def test_what_is_written_is_kept_and_a_named_address_is_looked_up() -> None:
    with imds() as service:
        service.values |= HERE
        metadata = metadata_at(service.url)
        kept = provider_of(completed(a_config(region="us-east-1", tag_value="me", master_url="http://m:1"), metadata))
        named = provider_of(completed(a_config(master_url="https://public-hostname:8443"), metadata))
        with pytest.raises(InvalidInput, match="public-ipv4"):
            completed(a_config(master_url="http://public-ipv4:8080"), metadata)
    assert (kept.region, kept.tag_value, kept.master_url) == ("us-east-1", "me", "http://m:1")
    assert named.master_url == "https://ec2-1-2-3-4.example:8443"


def test_elsewhere_the_region_is_in_the_environment_or_missed() -> None:
    provider = provider_of(completed(a_config(), {"AWS_DEFAULT_REGION": "us-west-2", **NOWHERE}))
    assert (provider.region, provider.tag_value, provider.master_url) == ("us-west-2", "determined-ai-determined", "")
    with pytest.raises(InvalidInput, match=r"provider\.region of pool 'gpus'"):
        completed(a_config(), NOWHERE)


@pytest.mark.parametrize(
    ("url", "host", "expected"),
    [
        ("http://10.0.0.1:8080", "0.0.0.0", "http://10.0.0.1:8080"),
        ("https://master.example", "0.0.0.0", "https://master.example:8080"),
        ("http://[fd00::1]", "0.0.0.0", "http://[fd00::1]:8080"),
        ("", "10.0.0.5", "http://10.0.0.5:8080"),
        ("", "fd00::5", "http://[fd00::5]:8080"),
    ],
)
def test_how_machines_reach_the_master(url: str, host: str, expected: str) -> None:
    config = a_config(master_url=url)
    assert reachable_master(config.resource_pools[0], provider_of(config).master_url, host, 8080) == expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "localhost", "::1"])
def test_an_address_that_only_the_master_knows_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"provider\.master_url"):
        reachable_master(a_config().resource_pools[0], "", host, 8080)


def test_every_key_reaches_ec2() -> None:
    given = settings(
        network_interface={
            "public_ip": False,
            "subnets": {"us-east-1a": "subnet-a"},
            "security_group_ids": ["sg-a", "sg-b"],
        },
        root_volume_size=500,
        iam_instance_profile_arn=ROLE,
        instance_name="worker",
        tag_key="owner",
        tag_value="me",
        custom_tags=[{"key": "team", "value": "vision"}],
        agent_docker_image="registry.example/agent:1",
        log_group="group",
        log_stream="stream",
        startup_script="true",
        max_agent_starting_period="10m",
        agent_config_file_contents={"container_runtime": "process"},
    )
    assert (given.root_volume_gb, given.instance_profile_arn, given.name) == (500, ROLE, "worker")
    assert (given.key_name, given.public_ip, given.security_group_ids) == ("key", False, ("sg-a", "sg-b"))
    assert given.subnets == {"us-east-1a": "subnet-a"}
    assert given.tags == {"owner": "me", "team": "vision"}
    host = given.host
    assert (host.startup_script, host.boot_timeout_s) == ("true", 600.0)
    assert (host.log_driver, host.log_options["awslogs-group"], host.log_options["awslogs-stream"]) == (
        "awslogs",
        "group",
        "stream",
    )
    assert host.agent_config == {
        "container_runtime": "process",
        "agent_reconnect_attempts": 5,
        "agent_reconnect_backoff": 5.0,
    }


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"image_id": None}, "image_id"),
        ({"startup_script": "".join(f"{n * 7919:x}" for n in range(9000))}, "startup_script"),
        ({"agent_config_file_contents": {"container_runtim": "process"}}, "container_runtim"),
        ({"log_group": "group"}, "agent_docker_image"),
        ({"master_cert_name": "other"}, "master_cert_name"),
    ],
)
def test_what_no_machine_could_boot_with_is_refused_at_the_start(keys: Mapping[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        settings(**keys)


@pytest.mark.parametrize(
    ("keys", "named"),
    [({"image_id": None, "master_url": "http://m:1"}, "image_id"), ({}, "master_url")],
)
def test_a_master_does_not_start_with_a_pool_that_cannot_work(keys: Mapping[str, Any], named: str) -> None:
    check(a_config(region="us-east-1", master_url="http://m:1"))
    with pytest.raises(InvalidInput, match=named):
        check(a_config(region="us-east-1", **keys))
