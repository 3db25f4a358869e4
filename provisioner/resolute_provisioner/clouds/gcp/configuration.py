"""Machines of Google Compute Engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    FreeMap,
    NonEmptyText,
    SecretMark,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.durations import PositiveDuration
from resolute.config.providers.common import (
    MIN_DISK_GB,
    CloudOffer,
    CloudProvider,
    Problems,
    prices_of_no_type,
    set_beside_offers,
)


class GcpNetworkInterface(ConfigModel):
    """Network of the machines."""

    network: Text | None = None
    """Network."""
    subnetwork: Text | None = None
    """Subnetwork."""
    external_ip: Flag = False
    """Give each an external address."""


class GcpServiceAccount(ConfigModel):
    """Account of the machines."""

    email: Text = ""
    """Its address."""
    scopes: tuple[Text, ...] = ("https://www.googleapis.com/auth/cloud-platform",)
    """What it may use."""


_BUILT_INTO: Mapping[str, str] = {
    "nvidia-tesla-a100": "a2-highgpu and a2-megagpu",
    "nvidia-a100-80gb": "a2-ultragpu",
    "nvidia-l4": "g2-standard",
    "nvidia-h100-80gb": "a3-highgpu and a3-edgegpu",
    "nvidia-h100-mega-80gb": "a3-megagpu",
    "nvidia-h200-141gb": "a3-ultragpu",
    "nvidia-b200": "a4-highgpu",
}
"""GPUs that come with the machine types of these names; the others are attached to n1 machines."""

_GPU_COUNTS: Mapping[str, tuple[int, ...]] = {
    "": (0,),
    "nvidia-tesla-t4": (0, 1, 2, 4),
    "nvidia-tesla-p100": (0, 1, 2, 4),
    "nvidia-tesla-p4": (0, 1, 2, 4),
    "nvidia-tesla-v100": (0, 1, 2, 4, 8),
    "nvidia-tesla-a100": (0, 1, 2, 4, 8, 16),
    "nvidia-a100-80gb": (0, 1, 2, 4, 8),
    "nvidia-l4": (0, 1, 2, 4, 8),
    "nvidia-h100-80gb": (0, 1, 2, 4, 8),
    "nvidia-h100-mega-80gb": (0, 8),
    "nvidia-h200-141gb": (0, 8),
    "nvidia-b200": (0, 8),
}


def _machine_type(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", text):
        raise broken_rule("must be a machine type such as n1-standard-8, a2-highgpu-1g or n2-custom-4-8192")
    return text


def _zone(name: str) -> str:
    if re.fullmatch(r"[a-z]+(-[a-z]+)+[0-9]+", name):
        raise broken_rule(f"is a region; name a zone of it, such as {name}-a")
    if name and not re.fullmatch(r"[a-z]+(-[a-z]+)+[0-9]+-[a-z0-9]+", name):
        raise broken_rule("is no zone; name zones such as us-central1-a, each a region and a letter")
    return name


MachineType = Annotated[NonEmptyText, AfterValidator(_machine_type)]
Zone = Annotated[NonEmptyText, AfterValidator(_zone)]


def _takes_gpus(machine_type: str) -> bool:
    return machine_type.startswith(("n1-", "custom-"))


def _gpu_problems(machine_types: tuple[str, ...], gpu_type: str, gpu_num: int) -> Problems:
    counts = _GPU_COUNTS.get(gpu_type)
    if counts is None:
        text = f"is not a known GPU; use one of: {', '.join(sorted(name for name in _GPU_COUNTS if name))}"
        return [(("gpu_type",), text, gpu_type)]
    if gpu_num and not gpu_type:
        return [(("gpu_num",), "lacks the kind of GPU; set gpu_type, or remove it", gpu_num)]
    if gpu_num not in counts:
        allowed = ", ".join(str(count) for count in counts)
        return [(("gpu_num",), f"must be one of {allowed} for the GPU '{gpu_type}'", gpu_num)]
    home = _BUILT_INTO.get(gpu_type)
    for machine_type in machine_types if gpu_num else ():
        if home is not None and _takes_gpus(machine_type):
            text = f"is built into machine types {home} and cannot be attached to {machine_type}; name one of those"
            return [(("gpu_type",), text, gpu_type)]
        if home is None and not _takes_gpus(machine_type):
            text = f"can be attached to n1 machines only, not to {machine_type}; name one of those, or remove it"
            return [(("gpu_type",), text, gpu_type)]
    return []


class GcpInstanceType(ConfigModel):
    """Kind of machine."""

    machine_type: MachineType = "n1-standard-32"
    """CPUs and memory, and with many types the GPUs."""
    gpu_type: Text = "nvidia-tesla-t4"
    """Kind of GPU, empty for none; without it, machine types other than n1 have what is built into them."""
    gpu_num: Count = 4
    """How many of them."""
    preemptible: Flag = False
    """Use preemptible machines."""

    @model_validator(mode="before")
    @classmethod
    def _built_in(cls, value: Any) -> Any:
        """GPUs are a default of the machines that they can be attached to."""
        machine_type = value.get("machine_type") if isinstance(value, Mapping) else None
        if isinstance(machine_type, str) and not _takes_gpus(machine_type) and not value.get("gpu_type"):
            return {"gpu_type": "", "gpu_num": 0, **value}
        return value

    @model_validator(mode="after")
    def _gpus(self) -> Self:
        found = _gpu_problems((self.machine_type,), self.gpu_type, self.gpu_num)
        if found:
            raise broken_at(*found)
        return self


class GcpOffer(CloudOffer):
    """Machines that may be bought: each of these types in each of these zones on each of these markets."""

    instance_types: Annotated[tuple[MachineType, ...], Field(min_length=1)]
    """Machine types."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=1)] | None = None
    """Where; null means all zones of the provider."""
    gpu_type: Text = ""
    """Kind of GPU to attach to n1 machines; other types have what is built into them."""
    gpu_num: Count = 0
    """How many of them."""

    @model_validator(mode="after")
    def _gpus(self) -> Self:
        found = _gpu_problems(self.instance_types, self.gpu_type, self.gpu_num)
        if not found and self.gpu_type and not self.gpu_num:
            found = [(("gpu_num",), f"must say how many GPUs '{self.gpu_type}' to attach", self.gpu_num)]
        if found:
            raise broken_at(*found)
        return self


class GcpProvider(CloudProvider):
    """Machines of Google Compute Engine."""

    hints: ClassVar[Mapping[str, str]] = {
        "price_refresh": "prices of Google Cloud are not queried; set prices, or spot_price in offers",
    }

    type: Literal["gcp"] = "gcp"
    """Tag of the provider."""
    base_config: Annotated[FreeMap | None, SecretMark.FREE] = None
    """Raw properties of the machine, under the keys below."""
    project: Text | None = None
    """Project; null means the master's own."""
    zone: Annotated[Text, AfterValidator(_zone)] | None = None
    """Zone; null means the master's own."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=1)] | None = None
    """Several zones, instead of zone."""
    boot_disk_size: Annotated[Count, Field(ge=MIN_DISK_GB)] = 200
    """Disk in GB."""
    boot_disk_source_image: Text | None = None
    """Machine image; mandatory, because no image is released."""
    boot_disk_type: Text | None = None
    """Kind of disk; null means pd-standard."""
    labels: dict[str, Text] = Field(default_factory=dict)
    """More labels."""
    label_key: NonEmptyText = "managed-by"
    """Key of the label by which machines are found again."""
    label_value: Text | None = None
    """Its value; null means the master's own name."""
    name_prefix: Text | None = None
    """Start of the machines' names; null means the master's own name."""
    network_interface: GcpNetworkInterface = GcpNetworkInterface()
    """Network."""
    network_tags: tuple[Text, ...] = ()
    """Network tags."""
    service_account: GcpServiceAccount = GcpServiceAccount()
    """Account."""
    instance_type: GcpInstanceType = GcpInstanceType()
    """Kind of machine."""
    cpu_slots_allowed: Flag = False
    """A machine without GPUs has one slot."""
    operation_timeout_period: PositiveDuration = 300.0
    """How long an operation is followed."""
    use_cloud_logging: Flag = False
    """Send the output of the agent's container to the cloud; needs `agent_docker_image`."""
    offers: tuple[GcpOffer, ...] = ()
    """What may be bought, instead of one instance_type."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found: Problems = []
        if self.zone and self.zones:
            found.append((("zone",), "is given beside zones; put it there and remove it here", self.zone))
        if self.offers:
            found += set_beside_offers(self, ("instance_type",))
        types = [type_ for offer in self.offers for type_ in offer.instance_types] or [self.instance_type.machine_type]
        found += prices_of_no_type(self.prices, types)
        for index, offer in enumerate(self.offers):
            if offer.reservation is not None and offer.zones is None and len(self.zones or (self.zone,)) != 1:
                found.append((("offers", index, "zones"), "must name the zone of the reservation", None))
        if found:
            raise broken_at(*found)
        return self


CONFIGURATION = GcpProvider
