"""Requests to EC2 as values: converts a launch request to the parameters of RunInstances. Pure.

Both markets are asked with the same call, so that tags, metadata service and shutdown behaviour cannot differ between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import HostSetup, render_boot_script
from resolute_provisioner.clouds.aws.catalogue import region_of
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.model import Market

CLUSTER_TAG, POOL_TAG, INSTANCE_TAG, TOKEN_TAG = (
    "resolute:cluster",
    "resolute:pool",
    "resolute:instance",
    "resolute:token",
)
"""The first one marks the machines of this cluster; the last one names the request."""

FIRST_CLUSTER_POOL_TAG, MASTER_TAG = "determined-resource-pool", "determined-master-address"
"""Set for tools and policies that use the original's tags; nothing here reads them."""

TAGS_OF_ONE_RESOURCE = 50
TAG_KEY_CHARACTERS, TAG_VALUE_CHARACTERS = 128, 256
"""EC2's own limits."""

METADATA_HOPS = 2
"""An agent in a container is one hop further away from the metadata service than its machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Settings of all machines of a pool, apart from their offers. Raises `InvalidInput`."""

    region: str
    image_id: str
    """Id of a machine image, or `resolve:ssm:<parameter>` that names one."""
    host: HostSetup
    key_name: str = ""
    instance_profile_arn: str = ""
    subnets: Mapping[str, str] = field(default_factory=dict)
    """Subnets by zone."""
    subnet_id: str = ""
    """Subnet of zones without one of their own; "" means the VPC's default."""
    security_group_ids: tuple[str, ...] = ()
    public_ip: bool = True
    root_volume_gb: int = 200
    name: str = "determined-ai-agent"
    tags: Mapping[str, str] = field(default_factory=dict)
    """The operator's tags, of `tag_key` and `custom_tags`. The master's own tags take precedence."""
    endpoint_url: str = ""
    """Endpoint instead of EC2's own, for a private endpoint."""

    def __post_init__(self) -> None:
        problems = []
        if not self.image_id:
            problems.append(
                f"image_id: must be given: no machine image is shipped for region {self.region}. Take one with Python 3.11 "
                "or newer, Docker, and for GPUs their driver; ami-... or resolve:ssm:<parameter> that holds one"
            )
        for key, value in self.tags.items():
            if key.lower().startswith("aws:") or not 0 < len(key) <= TAG_KEY_CHARACTERS:
                problems.append(f"custom_tags: {key!r} cannot be a key of a tag: 1 to 128 characters, not aws:...")
            if len(value) > TAG_VALUE_CHARACTERS:
                problems.append(f"custom_tags: the value of {key} has {len(value)} characters; EC2 allows 256")
        if len(self.tags) > TAGS_OF_ONE_RESOURCE - 7:
            problems.append(f"custom_tags: {len(self.tags)} are too many; EC2 allows 50, of which Resolute uses 7")
        if problems:
            raise InvalidInput("; ".join(problems))


def client_token(request: LaunchRequest) -> str:
    """EC2's name of the request: 64 characters. EC2 gives one machine for it until a day after that machine's end.

    It is made of our name of the machine, and the request's own token goes into a tag: so the same name with another
    token is an `IdempotentParameterMismatch`.
    """
    return hashlib.sha256(f"{request.cluster}\n{request.instance_id}".encode()).hexdigest()


def render_launch_request(
    request: LaunchRequest, settings: AwsSettings, *, root_device: str = "/dev/sda1"
) -> dict[str, Any]:
    """The parameters of RunInstances for one machine. Raises `InvalidInput` when its user data is too long."""
    offer = request.offer
    parameters: dict[str, Any] = {
        "ClientToken": client_token(request),
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": settings.image_id,
        "InstanceType": offer.instance_type,
        "UserData": render_boot_script(request.boot, settings.host),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": METADATA_HOPS,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": root_device,
                "Ebs": {"VolumeSize": settings.root_volume_gb, "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
        "NetworkInterfaces": [_network_interface(request, settings)],
        "TagSpecifications": _tag_specifications(request, settings),
    }
    if settings.key_name:
        parameters["KeyName"] = settings.key_name
    if settings.instance_profile_arn:
        parameters["IamInstanceProfile"] = {"Arn": settings.instance_profile_arn}
    if "SubnetId" not in parameters["NetworkInterfaces"][0] and region_of(offer.zone) == settings.region:
        parameters["Placement"] = {"AvailabilityZone": offer.zone}
    if offer.market is Market.SPOT:
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": _spot(offer.max_price_per_hour)}
    if offer.reservation:
        target = (
            "CapacityReservationResourceGroupArn" if offer.reservation.startswith("arn:") else "CapacityReservationId"
        )
        parameters["CapacityReservationSpecification"] = {"CapacityReservationTarget": {target: offer.reservation}}
    return parameters


def _spot(max_price: float | None) -> dict[str, Any]:
    """Options of a spot request. Without a maximum price, EC2 limits the price to the on-demand price."""
    options: dict[str, Any] = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if max_price is not None:
        options["MaxPrice"] = f"{max_price:.6f}".rstrip("0").rstrip(".")
    return options


def _network_interface(request: LaunchRequest, settings: AwsSettings) -> dict[str, Any]:
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": settings.public_ip,
        "DeleteOnTermination": True,
    }
    subnet = settings.subnets.get(request.offer.zone) or settings.subnet_id
    if subnet:
        interface["SubnetId"] = subnet
    if settings.security_group_ids:
        interface["Groups"] = list(settings.security_group_ids)
    return interface


def _tag_specifications(request: LaunchRequest, settings: AwsSettings) -> list[dict[str, Any]]:
    """Tags of the machine. The volume and the spot request have the same tags, for cost allocation."""
    tags = {
        **settings.tags,
        **request.tags,
        "Name": settings.name,
        FIRST_CLUSTER_POOL_TAG: request.pool,
        MASTER_TAG: urlsplit(request.boot.master_url).netloc,
        CLUSTER_TAG: request.cluster,
        POOL_TAG: request.pool,
        INSTANCE_TAG: request.instance_id,
        TOKEN_TAG: request.token,
    }
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    kinds = ["instance", "volume"]
    if request.offer.market is Market.SPOT:
        kinds.append("spot-instances-request")
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]
