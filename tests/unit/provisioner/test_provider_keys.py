"""That each key of a cloud's provider block reaches what is bought, asked or booted, or is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from resolute.config import ResourcePool
from resolute.errors import InvalidInput
from resolute_master.pools.policies import scaling_of
from resolute_provisioner.bootstrap import AgentWheel, MachineBoot, render_boot_script
from resolute_provisioner.clouds.aws.configuration import AwsProvider
from resolute_provisioner.clouds.aws.driver import aws_settings
from resolute_provisioner.clouds.gcp.configuration import GcpProvider
from resolute_provisioner.clouds.gcp.driver import gcp_settings, zones_of
from resolute_provisioner.clouds.gcp.request import GcpSettings
from resolute_provisioner.clouds.machine_host import reachable_master

WHEEL = AgentWheel(name="resolute_ml-1.0-py3-none-any.whl", sha256="0f" * 32)
BOOT = MachineBoot(
    master_url="http://m:8080", agent_id="a", resource_pool="gpus", instance_id="a", join_token="t", slot_type="cuda"
)
IN_CONTAINER = {"agent_docker_image": "registry.example/agent:1"}
COMMON: Mapping[str, tuple[object, Mapping[str, object]]] = {
    "master_url": ("http://10.0.0.9:8080", {}),
    "min_instances": (1, {}),
    "max_instances": (9, {}),
    "max_idle_agent_period": ("1m", {}),
    "max_idle_cost": (2.0, {}),
    "consolidation": ({"margin": 3}, {}),
    "disruption": ({"max_per_hour": 2}, {}),
    "max_agent_starting_period": ("1m", {}),
    "launch_error_timeout": ("1m", {}),
    "launch_error_retries": (2, {}),
    "spot_fallback": ({"after": "1m"}, {}),
    "agent_reconnect_attempts": (7, {}),
    "agent_reconnect_backoff": ("7s", {}),
    "startup_script": ("true", {}),
    "container_startup_script": ("true", {}),
    "agent_docker_image": ("registry.example/agent:2", {}),
    "agent_docker_network": ("host", IN_CONTAINER),
    "agent_docker_runtime": ("nvidia", IN_CONTAINER),
    "agent_config_file_contents": ({"debug": True}, {}),
}
AWS: Mapping[str, tuple[object, Mapping[str, object]]] = {
    "region": ("us-west-2", {}),
    "image_id": ("ami-2", {}),
    "instance_type": ("p3.2xlarge", {}),
    "instance_slots": (3, {"instance_type": "x9.large", "instance_slots": 2}),
    "cpu_slots_allowed": (True, {"instance_type": "c5.xlarge"}),
    "root_volume_size": (300, {}),
    "ssh_key_name": ("other", {}),
    "iam_instance_profile_arn": ("arn:aws:iam::111122223333:instance-profile/agents", {}),
    "network_interface": ({"subnet_id": "subnet-1"}, {}),
    "tag_key": ("owner", {}),
    "tag_value": ("me", {}),
    "instance_name": ("worker", {}),
    "custom_tags": ([{"key": "team", "value": "vision"}], {}),
    "log_group": ("group", IN_CONTAINER),
    "log_stream": ("stream", {"log_group": "group", **IN_CONTAINER}),
    "spot": (True, {}),
    "spot_max_price": ("0.5", {"spot": True}),
    "offers": ([{"instance_types": ["g6.xlarge"]}], {"instance_type": "g4dn.metal"}),
    "prices": ({"g5.xlarge": {"on_demand": 1.25}}, {}),
}
GCP: Mapping[str, tuple[object, Mapping[str, object]]] = {
    "base_config": ({"canIpForward": True}, {}),
    "project": ("q", {}),
    "zone": ("us-central1-b", {}),
    "zones": (["us-central1-b", "us-central1-c"], {"zone": None}),
    "boot_disk_size": (300, {}),
    "boot_disk_source_image": ("projects/p/global/images/other", {}),
    "boot_disk_type": ("pd-ssd", {}),
    "labels": ({"team": "vision"}, {}),
    "label_key": ("owner", {}),
    "label_value": ("me", {}),
    "name_prefix": ("gpu-", {}),
    "network_interface": ({"network": "n"}, {}),
    "network_tags": (["a"], {}),
    "service_account": ({"email": "agent@p"}, {}),
    "instance_type": ({"machine_type": "n1-standard-8"}, {}),
    "cpu_slots_allowed": (True, {"instance_type": {"machine_type": "c2-standard-8"}}),
    "operation_timeout_period": ("1m", {}),
    "use_cloud_logging": (True, IN_CONTAINER),
    "offers": ([{"instance_types": ["g2-standard-8"]}], {}),
    "prices": ({"n1-standard-32": {"on_demand": 1.25}}, {}),
}
BASE: Mapping[str, Mapping[str, object]] = {
    "aws": {
        "type": "aws",
        "region": "us-east-1",
        "ssh_key_name": "key",
        "image_id": "ami-1",
        "instance_type": "g5.xlarge",
    },
    "gcp": {
        "type": "gcp",
        "project": "p",
        "zone": "us-central1-a",
        "boot_disk_source_image": "projects/p/global/images/i",
    },
}
WITHOUT_EFFECT = {"type", "agent_fluent_image"}
"""The tag, and what the reference says has no effect."""
WATCHED = {"price_refresh"}
"""How often a price is asked decides nothing of a machine: tests/unit/pools/test_price_sources.py has its own."""
REFUSED = {"master_cert_name": "name"}


def reached(keys: Mapping[str, object]) -> list[object]:
    """What is bought, what the cloud is told of a machine, and what the machine does at its boot."""
    pool = ResourcePool.model_validate({"pool_name": "gpus", "provider": keys})
    provider = pool.provider
    settings: Any
    if isinstance(provider, AwsProvider):
        settings = aws_settings(pool, provider, WHEEL)
        script, zones = render_boot_script(BOOT, settings.host), frozenset[str]()
    else:
        assert isinstance(provider, GcpProvider)
        settings = gcp_settings(pool, provider, WHEEL)
        assert isinstance(settings, GcpSettings)
        script, zones = settings.startup_script(BOOT), zones_of(provider)
    told = [getattr(settings, field.name) for field in fields(settings) if field.name not in ("host", "startup_script")]
    return [scaling_of(pool), told, script, zones, reachable_master(pool, provider.master_url, "10.0.0.1", 8080)]


CASES = [(cloud, key, *case) for cloud, own in (("aws", AWS), ("gcp", GCP)) for key, case in {**COMMON, **own}.items()]


@pytest.mark.parametrize(("cloud", "key", "value", "beside"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_key_reaches_a_machine_or_what_is_bought(
    cloud: str, key: str, value: object, beside: Mapping[str, object]
) -> None:
    base = {**BASE[cloud], **beside}
    assert reached({**base, key: value}) != reached(base)


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("key", sorted(REFUSED))
def test_what_is_not_acted_on_is_refused_by_its_name_once(cloud: str, key: str) -> None:
    with pytest.raises(InvalidInput, match=rf"resource_pools: provider of pool 'gpus': {key}: ") as refused:
        reached({**BASE[cloud], key: REFUSED[key]})
    assert str(refused.value).count("resource_pools") == str(refused.value).count("gpus") == 1


@pytest.mark.parametrize(("cloud", "model", "own"), [("aws", AwsProvider, AWS), ("gcp", GcpProvider, GCP)])
def test_no_key_is_left_out_here(
    cloud: str, model: type[AwsProvider] | type[GcpProvider], own: Mapping[str, object]
) -> None:
    known = set(COMMON) | set(own) | set(REFUSED) | WITHOUT_EFFECT | WATCHED
    assert set(model.model_fields) <= known


def test_the_agents_file_may_be_a_text() -> None:
    as_mapping = reached({**BASE["aws"], "agent_config_file_contents": {"debug": True, "log": {"level": "debug"}}})
    for text in ("debug: true\nlog:\n  level: debug\n", '{"debug": true, "log": {"level": "debug"}}'):
        assert reached({**BASE["aws"], "agent_config_file_contents": text}) == as_mapping


@pytest.mark.parametrize(
    ("text", "said"), [("debug: [", "must be the text of a configuration file of agents"), ("a list", "mapping")]
)
def test_a_text_that_is_no_configuration_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="agent_config_file_contents") as refused:
        reached({**BASE["aws"], "agent_config_file_contents": text})
    assert said in str(refused.value)
