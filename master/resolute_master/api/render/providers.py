"""The provider of a pool in the contract's words. What has many values in a pool of several offers is named once each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from resolute.config.base import MASK
from resolute.config.providers import AwsProvider, CloudProvider, GcpProvider, LocalProvider
from resolute.wire.rest.enums import DeviceType, ResourcePoolType
from resolute.wire.rest.pools import AwsCustomTag, ResourcePoolAwsDetail, ResourcePoolGcpDetail
from resolute_provisioner.model import Market, Offer

AnyProvider = AwsProvider | GcpProvider | LocalProvider | None

SLOT_TYPES = {"cuda": DeviceType.CUDA, "rocm": DeviceType.ROCM, "cpu": DeviceType.CPU, "artificial": DeviceType.CPU}
"""Of an offer's slots, as its machines report them."""


def named(names: Iterable[str]) -> str:
    return ", ".join(sorted({name for name in names if name}))


def provider_fields(provider: AnyProvider, offers: Sequence[Offer]) -> dict[str, Any]:
    """The fields of a `ResourcePool` that its provider says; empty where it says nothing."""
    cloud = provider if isinstance(provider, CloudProvider) else None
    return {
        "type": _type(provider),
        "preemptible": any(offer.market is Market.SPOT for offer in offers),
        "location": named(offer.zone or offer.region for offer in offers),
        "instance_type": named(offer.instance_type for offer in offers),
        "accelerator": named(offer.accelerator for offer in offers),
        "image_id": _image(provider),
        "master_url": provider.master_url if provider else "",
        "master_cert_name": provider.master_cert_name if provider else "",
        "agent_docker_image": cloud.agent_docker_image if cloud else "",
        "agent_docker_network": cloud.agent_docker_network if cloud else "",
        "agent_docker_runtime": cloud.agent_docker_runtime if cloud else "",
        "agent_fluent_image": (cloud.agent_fluent_image or "") if cloud else "",
        "startup_script": MASK if cloud and cloud.startup_script else "",
        "container_startup_script": MASK if cloud and cloud.container_startup_script else "",
    }


def _type(provider: AnyProvider) -> ResourcePoolType:
    match provider:
        case AwsProvider():
            return ResourcePoolType.AWS
        case GcpProvider():
            return ResourcePoolType.GCP
        case _:
            # The contract has no word for a pool of machines that the master starts elsewhere.
            return ResourcePoolType.STATIC


def _image(provider: AnyProvider) -> str:
    match provider:
        case AwsProvider():
            return provider.image_id or ""
        case GcpProvider():
            return provider.boot_disk_source_image or ""
        case _:
            return ""


def slot_type(offers: Sequence[Offer]) -> DeviceType:
    """What the first machine would bring; unknown where only the machine can tell."""
    return next(
        (SLOT_TYPES[o.slot_type] for o in offers if o.slots and o.slot_type in SLOT_TYPES), DeviceType.UNSPECIFIED
    )


def aws_detail(provider: AnyProvider, offers: Sequence[Offer]) -> ResourcePoolAwsDetail | None:
    if not isinstance(provider, AwsProvider):
        return None
    network = provider.network_interface
    return ResourcePoolAwsDetail(
        iam_instance_profile_arn=provider.iam_instance_profile_arn or "",
        image_id=provider.image_id or "",
        instance_name=provider.instance_name,
        public_ip=network.public_ip,
        region=provider.region or named(offer.region for offer in offers),
        root_volume_size=provider.root_volume_size,
        security_group_id=network.security_group_id or ", ".join(network.security_group_ids),
        spot_enabled=any(offer.market is Market.SPOT for offer in offers),
        ssh_key_name=provider.ssh_key_name,
        tag_key=provider.tag_key,
        tag_value=provider.tag_value or "",
        custom_tags=tuple(AwsCustomTag(key=tag.key, value=tag.value) for tag in provider.custom_tags),
        instance_type=named(offer.instance_type for offer in offers),
        log_group=provider.log_group,
        log_stream=provider.log_stream,
        spot_max_price=provider.spot_max_price,
        subnet_id=network.subnet_id or ", ".join(network.subnets.values()) or None,
    )


def gcp_detail(provider: AnyProvider, offers: Sequence[Offer]) -> ResourcePoolGcpDetail | None:
    if not isinstance(provider, GcpProvider):
        return None
    network, account = provider.network_interface, provider.service_account
    return ResourcePoolGcpDetail(
        boot_disk_size=provider.boot_disk_size,
        boot_disk_source_image=provider.boot_disk_source_image or "",
        external_ip=network.external_ip,
        gpu_num=max((offer.accelerators for offer in offers), default=0),
        gpu_type=named(offer.accelerator for offer in offers),
        label_key=provider.label_key,
        label_value=provider.label_value or "",
        machine_type=named(offer.instance_type for offer in offers),
        name_prefix=provider.name_prefix or "",
        network=network.network or "",
        operation_timeout_period=provider.operation_timeout_period,
        preemptible=any(offer.market is Market.SPOT for offer in offers),
        project=provider.project or "",
        service_account_email=account.email,
        service_account_scopes=account.scopes,
        zone=named(offer.zone for offer in offers),
        network_tags=provider.network_tags,
        subnetwork=network.subnetwork,
    )
