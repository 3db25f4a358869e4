"""What a pool's configuration comes to on Google Cloud, and what the master's own machine fills in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

from resolute.clock import SystemClock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.errors import InvalidInput
from resolute_master.pools.clouds import completed
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.clouds.gcp.configuration import GcpProvider
from resolute_provisioner.clouds.gcp.driver import gcp_cloud, gcp_settings, zones_of
from resolute_provisioner.clouds.gcp.request import render_launch_request
from support.api import master_config
from support.gce_metadata import FakeMetadata
from support.provisioner import a_request

WHEEL = AgentWheel(name="resolute_ml-1-py3-none-any.whl", sha256="0" * 64)
IMAGE = "projects/p/global/images/family/f"
Environment = Mapping[str, str]
NOWHERE: Environment = {"GCE_METADATA_HOST": "127.0.0.1:9"}
"""Nobody listens on the port for discarding."""
ON_GOOGLE = {
    "project/project-id": "lab-7",
    "instance/zone": "projects/123/zones/us-central1-b",
    "instance/name": "the-master-of-the-laboratory-of-vision",
    "instance/network-interfaces/0/ip": "10.1.2.3",
    "instance/network-interfaces/0/access-configs/0/external-ip": "34.1.2.3",
}


@pytest.fixture
def metadata() -> Iterator[Environment]:
    server = FakeMetadata(ON_GOOGLE)
    yield {"GCE_METADATA_HOST": server.url.removesuffix("/computeMetadata/v1").removeprefix("http://")}
    server.close()


def config_of(tmp_path: Path, provider: Mapping[str, Any]) -> MasterConfig:
    given = {"type": "gcp", "boot_disk_source_image": IMAGE, **provider}
    return master_config(
        tmp_path, resource_pools=[{"pool_name": "default", "provider": given, "shared_file_system": True}]
    )


def provider_of(config: MasterConfig) -> tuple[ResourcePool, GcpProvider]:
    (pool,) = config.resource_pools
    assert isinstance(pool.provider, GcpProvider)
    return pool, pool.provider


def test_a_master_on_google_cloud_fills_in_what_is_left_out(tmp_path: Path, metadata: Environment) -> None:
    _, provider = provider_of(completed(config_of(tmp_path, {}), metadata))
    assert (provider.project, provider.zone) == ("lab-7", "us-central1-b")
    assert provider.label_value == "the-master-of-the-laboratory-of-vision"
    assert provider.name_prefix == "the-master-of-the-laboratory-"
    assert provider.master_url == "http://10.1.2.3:8080"


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        ("https://external-ip:8443", "https://34.1.2.3:8443"),
        ("http://internal-ip", "http://10.1.2.3:8080"),
        ("http://master.example.org:80", "http://master.example.org:80"),
    ],
)
def test_the_address_may_be_asked_for_by_name(tmp_path: Path, metadata: Environment, asked: str, url: str) -> None:
    _, provider = provider_of(completed(config_of(tmp_path, {"master_url": asked}), metadata))
    assert provider.master_url == url


def test_what_is_said_is_not_asked_for(tmp_path: Path) -> None:
    said = {
        "project": "p",
        "zones": ["us-central1-a", "us-central1-c"],
        "label_value": "mine",
        "name_prefix": "",
        "master_url": "http://10.0.0.1:8080",
    }
    config = config_of(tmp_path, said)
    assert completed(config, NOWHERE) == config
    assert zones_of(provider_of(config)[1]) == {"us-central1-a", "us-central1-c"}


def test_zones_of_offers_need_no_zone_of_the_pool(tmp_path: Path) -> None:
    offers = [{"instance_types": ["g2-standard-8"], "zones": ["us-central1-a"], "markets": ["spot"]}]
    _, provider = provider_of(completed(config_of(tmp_path, {"project": "p", "offers": offers}), NOWHERE))
    assert provider.zone is None and zones_of(provider) == {"us-central1-a"}
    with pytest.raises(InvalidInput, match=r"provider\.zone of pool 'default'"):
        completed(config_of(tmp_path, {"project": "p", "offers": [{"instance_types": ["g2-standard-8"]}]}), NOWHERE)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ({"zone": "us-central1-a"}, r"provider\.project of pool 'default' must be given"),
        ({"project": "p"}, r"provider\.zone of pool 'default' must be given"),
        ({"project": "p", "zone": "us-central1-a", "master_url": "http://external-ip:80"}, "external-ip"),
    ],
)
def test_elsewhere_what_is_missing_is_asked_for(tmp_path: Path, provider: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        completed(config_of(tmp_path, provider), NOWHERE)


def test_every_key_finds_its_place(tmp_path: Path) -> None:
    provider = {
        "project": "p",
        "zone": "us-central1-a",
        "label_key": "Owner".lower(),
        "label_value": "The Lab",
        "labels": {"team": "vision"},
        "name_prefix": "gpu-",
        "boot_disk_size": 300,
        "boot_disk_type": "projects/p/zones/us-central1-a/diskTypes/pd-ssd",
        "network_interface": {"network": "n", "subnetwork": "s", "external_ip": True},
        "network_tags": ["a", "b"],
        "service_account": {"email": "agent@p"},
        "base_config": {"canIpForward": True},
        "startup_script": "echo first",
        "operation_timeout_period": "3m",
    }
    settings = gcp_settings(*provider_of(config_of(tmp_path, provider)), WHEEL)
    assert settings.operation_timeout_s == 180.0
    body = render_launch_request(a_request(), settings)
    assert body["name"].startswith("gpu-i-1-") and body["canIpForward"] is True
    assert body["labels"]["team"] == "vision" and body["labels"]["owner"].startswith("the-lab-")
    disk = body["disks"][0]["initializeParams"]
    assert (disk["sourceImage"], disk["diskSizeGb"]) == (IMAGE, "300")
    assert disk["diskType"] == "zones/zone-a/diskTypes/pd-ssd"
    assert body["networkInterfaces"][0]["accessConfigs"]
    assert body["tags"]["items"] == ["a", "b"]
    assert body["serviceAccounts"] == [
        {"email": "agent@p", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ]
    script = body["metadata"]["items"][0]["value"]
    assert script.startswith("#!/bin/bash") and "Metadata-Flavor: Google" in script and "INSTANCE=i-1" in script
    assert "secret" not in script


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boot_disk_source_image": None}, r"provider\.boot_disk_source_image of pool 'default' must be given"),
        ({"labels": {"Team": "x"}}, r"pool 'default': provider\.labels: 'Team'"),
        ({"name_prefix": "-x"}, r"provider\.name_prefix"),
        ({"base_config": {"diskz": []}}, r"provider\.base_config: .*diskz"),
    ],
)
def test_a_pool_that_could_launch_nothing_opens_no_cloud(
    tmp_path: Path, changes: Mapping[str, Any], message: str
) -> None:
    config = config_of(tmp_path, {"project": "p", "zone": "us-central1-a", **changes})
    with pytest.raises(InvalidInput, match=message):
        gcp_cloud(
            *provider_of(config),
            WHEEL,
            SystemClock(),
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        )
