"""The provider of a pool in the contract's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resolute.config.providers import ProviderBase
from resolute.wire.rest.enums import DeviceType, ResourcePoolType
from resolute_provisioner.clouds.driver import driver_of
from resolute_provisioner.model import Market, Offer

SLOT_TYPES = {"cuda": DeviceType.CUDA, "rocm": DeviceType.ROCM, "cpu": DeviceType.CPU, "artificial": DeviceType.CPU}
"""Type of an offer's slots, by the kind that its machines report."""

NOT_ELASTIC: Mapping[str, Any] = {
    "type": ResourcePoolType.STATIC,
    "preemptible": False,
    **dict.fromkeys(
        (
            "location",
            "instance_type",
            "accelerator",
            "image_id",
            "master_url",
            "master_cert_name",
            "agent_docker_image",
            "agent_docker_network",
            "agent_docker_runtime",
            "agent_fluent_image",
            "startup_script",
            "container_startup_script",
        ),
        "",
    ),
}
"""The values for a pool without a provider, and those that a provider does not set."""


def provider_fields(provider: ProviderBase | None, offers: Sequence[Offer]) -> dict[str, Any]:
    """The fields of a `ResourcePool` that its provider sets."""
    shown = {} if provider is None else driver_of(provider).shown(provider, offers)
    return {**NOT_ELASTIC, "preemptible": any(offer.market is Market.SPOT for offer in offers), **shown}


def provider_details(provider: ProviderBase | None, offers: Sequence[Offer]) -> dict[str, Any]:
    """The fields of a `ResourcePoolDetail` that its provider sets."""
    return {} if provider is None else driver_of(provider).shown_details(provider, offers)


def slot_type(offers: Sequence[Offer]) -> DeviceType:
    """The slots of the first machine; unknown where only the machine can report them."""
    return next(
        (SLOT_TYPES[o.slot_type] for o in offers if o.slots and o.slot_type in SLOT_TYPES), DeviceType.UNSPECIFIED
    )
