"""What Compute Engine is asked for one machine, and what is refused before it is asked."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_provisioner.clouds.base import BadRequest, NoCapacity, QuotaExceeded, Throttled, Transient
from resolute_provisioner.clouds.gcp.fake import gcp_settings
from resolute_provisioner.clouds.gcp.fake_rules import check
from resolute_provisioner.clouds.gcp.request import (
    GcpSettings,
    label_value,
    machine_name,
    render_launch_request,
    request_id,
)
from resolute_provisioner.model import Market, Offer
from support.provisioner import a_request

T4 = Offer(
    offer_id="gcp/us-central1-a/n1-standard-8+nvidia-tesla-t4x2/spot",
    instance_type="n1-standard-8",
    zone="us-central1-a",
    market=Market.SPOT,
    slots=2,
    accelerator="nvidia-tesla-t4",
    accelerators=2,
)
A100 = replace(
    T4, instance_type="a2-highgpu-8g", market=Market.ON_DEMAND, accelerator="nvidia-tesla-a100", accelerators=8
)

LABELS = {
    "determined-master-host": "127-0-0-1",
    "determined-master-port": "8080",
    "determined-resource-pool": "default",
    "managed-by": "someone",
    "resolute-cluster": "cluster-1",
    "resolute-instance": "i-1",
    "resolute-token": "token-i-1",
}

SPOT_T4: dict[str, Any] = {
    "machineType": "zones/us-central1-a/machineTypes/n1-standard-8",
    "minCpuPlatform": "Intel Broadwell",
    "guestAccelerators": [
        {
            "acceleratorType": "projects/project-1/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4",
            "acceleratorCount": 2,
        }
    ],
    "scheduling": {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    },
    "labels": LABELS,
    "disks": [
        {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {
                "sourceImage": "projects/images/global/images/family/some",
                "diskType": "zones/us-central1-a/diskTypes/pd-ssd",
                "diskSizeGb": "200",
                "labels": LABELS,
            },
        }
    ],
    "metadata": {
        "items": [
            {"key": "startup-script", "value": "#!/bin/sh\n# i-1\n"},
            {"key": "determined-master-address", "value": "http://127.0.0.1:8080"},
        ]
    },
    "networkInterfaces": [
        {
            "network": "projects/p/global/networks/n",
            "subnetwork": "projects/p/regions/us-central1/subnetworks/s",
            "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
        }
    ],
    "tags": {"items": ["agents"]},
    "serviceAccounts": [
        {
            "email": "agents@p.iam.gserviceaccount.com",
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        }
    ],
}
"""The request for it, but for its name."""


def body_of(offer: Offer = T4, **settings: Any) -> dict[str, Any]:
    """The request, which must be one that the published document allows."""
    body = render_launch_request(a_request(offer=offer), gcp_settings(**settings))
    check(body, {"$ref": "Instance"}, where="Instance", asked=True)
    return body


def test_a_spot_machine_with_attached_gpus() -> None:
    settings = gcp_settings(
        labels={"managed-by": "someone"},
        name_prefix="lab-",
        network="projects/p/global/networks/n",
        subnetwork="projects/p/regions/us-central1/subnetworks/s",
        external_ip=True,
        network_tags=("agents",),
        service_account="agents@p.iam.gserviceaccount.com",
        scopes=("https://www.googleapis.com/auth/cloud-platform",),
        boot_disk_type="projects/p/zones/elsewhere/diskTypes/pd-ssd",
    )
    name = machine_name(a_request(offer=T4), settings)
    assert name.startswith("lab-i-1-")
    assert render_launch_request(a_request(offer=T4), settings) == {"name": name, **SPOT_T4}
    check(render_launch_request(a_request(offer=T4), settings), {"$ref": "Instance"}, where="Instance", asked=True)


def test_built_in_gpus_are_not_asked_for_and_a_bought_machine_is_no_spot_machine() -> None:
    body = body_of(A100)
    assert "guestAccelerators" not in body
    assert body["scheduling"] == {
        "provisioningModel": "STANDARD",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }


@pytest.mark.parametrize(
    ("instance_type", "platform"),
    [
        ("n1-standard-8", "Intel Broadwell"),
        ("custom-8-32768", "Intel Broadwell"),
        ("c2-standard-8", "Intel Broadwell"),
        ("g2-standard-8", "Intel Cascade Lake"),
        ("a2-highgpu-1g", "Intel Cascade Lake"),
        ("n2-standard-8", "Intel Cascade Lake"),
        ("a3-highgpu-8g", None),
        ("n2d-standard-8", None),
        ("c3-standard-8", None),
    ],
)
def test_the_least_cpu_platform_is_that_of_the_family(instance_type: str, platform: str | None) -> None:
    assert body_of(replace(A100, instance_type=instance_type)).get("minCpuPlatform") == platform


def test_a_reservation_is_named_and_nothing_else_is_taken() -> None:
    assert body_of(replace(A100, reservation="block-7"))["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["block-7"],
    }


def test_half_a_network_is_left_to_the_project() -> None:
    assert body_of(network="projects/p/global/networks/n")["networkInterfaces"] == [
        {"network": "global/networks/default"}
    ]


def test_the_base_configuration_lies_under_all_else() -> None:
    base = {
        "canIpForward": True,
        "machineType": "zones/z/machineTypes/never",
        "labels": {"team": "vision", "resolute-token": "never"},
        "disks": [{"source": "zones/us-central1-a/disks/data", "mode": "READ_ONLY"}],
        "metadata": {
            "items": [{"key": "startup-script", "value": "never"}, {"key": "serial-port-enable", "value": "1"}]
        },
        "networkInterfaces": [{"network": "projects/p/global/networks/other"}],
        "scheduling": {"minNodeCpus": 4, "automaticRestart": True},
    }
    body, plain = body_of(base_config=base), body_of()
    assert body["machineType"] == plain["machineType"] and body["canIpForward"] is True
    assert body["labels"] == {**plain["labels"], "team": "vision"}
    assert body["disks"] == [*plain["disks"], *base["disks"]]  # type: ignore[misc]
    assert [item["key"] for item in body["metadata"]["items"]] == [
        "startup-script",
        "determined-master-address",
        "serial-port-enable",
    ]
    assert body["metadata"]["items"][0] == plain["metadata"]["items"][0]
    assert body["networkInterfaces"] == base["networkInterfaces"]
    assert body["scheduling"] == {**plain["scheduling"], "minNodeCpus": 4}
    assert json.loads(json.dumps(body)) == body


def test_a_property_that_the_api_does_not_have_is_named() -> None:
    from resolute_provisioner.clouds.gcp.calls import parsed  # Google's client takes seconds to import

    with pytest.raises(InvalidInput, match=r"provider\.base_config: .*diskz"):
        parsed({"diskz": []}, what="provider.base_config")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"project": ""}, r"provider\.project"),
        ({"labels": {"Team": "x"}}, r"provider\.labels: 'Team' is no key"),
        ({"labels": {"team": "Vision Lab"}}, r"provider\.labels\.team: 'Vision Lab' is no value"),
        ({"labels": {"resolute-token": "x"}}, r"provider\.labels\.resolute-token"),
        ({"name_prefix": "1-"}, r"provider\.name_prefix: '1-'"),
    ],
)
def test_what_the_api_would_refuse_is_refused_at_the_start(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        gcp_settings(**changes)


def test_no_zone_and_a_token_that_is_no_label_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"provider\.zone"):
        body_of(replace(T4, zone=""))
    assert body_of(replace(T4, zone=""), zone="zone-b")["machineType"] == "zones/zone-b/machineTypes/n1-standard-8"
    with pytest.raises(BadRequest, match="token"):
        render_launch_request(a_request(token="Not A Label"), gcp_settings())


def test_names_are_valid_and_of_one_cluster_and_instance() -> None:
    settings: GcpSettings = gcp_settings()
    pool = "A Pool/with.a_name " * 5
    asked = [("i-1", "c-1"), ("i-1", "c-2"), ("I-1", "c-1"), (f"{pool}-1", "c-1"), (f"{pool}-2", "c-1"), ("7", "c-1")]
    names = [machine_name(a_request(name, cluster=cluster), settings) for name, cluster in asked]
    assert len(set(names)) == len(names)
    for name in names:
        check(name, {"type": "string", "pattern": r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"}, where=name, asked=True)


def test_label_values_say_what_they_can() -> None:
    assert label_value("0f8e-default") == "0f8e-default"
    cut = label_value("0f8e/Default Pool")
    assert cut.startswith("0f8e-default-pool-") and cut != label_value("0f8e/default pool")
    assert len(label_value("é" * 200)) <= 63


def test_each_attempt_has_an_id_of_its_own() -> None:
    token = str(uuid.UUID(int=7))
    ids = [request_id(token, attempt) for attempt in range(3)]
    assert len({*ids, request_id("other")}) == 4 and ids[0] == request_id(token)
    assert all(uuid.UUID(each) for each in ids)


@pytest.mark.parametrize(
    ("status", "codes", "text", "kind"),
    [
        (0, ["ZONE_RESOURCE_POOL_EXHAUSTED"], "", NoCapacity),
        (503, ["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"], "", NoCapacity),
        (0, ["STOCKOUT"], "", NoCapacity),
        (400, ["invalid"], "The reservation does not have enough resources to fulfill the request", NoCapacity),
        (403, ["quotaExceeded"], "", QuotaExceeded),
        (0, ["QUOTA_EXCEEDED"], "", QuotaExceeded),
        (403, ["rateLimitExceeded"], "", Throttled),
        (429, [], "", Throttled),
        (403, ["forbidden"], "", BadRequest),
        (400, ["invalid"], "", BadRequest),
        (400, ["resourceNotReady"], "", Transient),
        (404, ["notFound"], "", BadRequest),
        (409, ["alreadyExists"], "", BadRequest),
        (500, ["backendError"], "", Transient),
        (0, ["SOMETHING_NEW"], "", Transient),
    ],
)
def test_an_answer_is_of_the_class_that_tells_what_to_do(status: int, codes: list[str], text: str, kind: type) -> None:
    from resolute_provisioner.clouds.gcp.calls import error_of

    assert isinstance(error_of(status, codes, text), kind)
