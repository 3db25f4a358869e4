"""Where the machines of an elastic pool come from: AWS, Google Cloud, or this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    FreeMap,
    NonEmptyText,
    Number,
    PositiveInteger,
    Secret,
    TaggedUnion,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.durations import Duration, PositiveDuration

MIN_DISK_GB = 100  # the machine image alone needs about half of it


def _master_url(text: str) -> str:
    if text:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise broken_rule("must be scheme://host:port with scheme http or https and without a path")
    return text


class _Provider(ConfigModel):
    """What every elastic pool has."""

    master_url: Annotated[Text, AfterValidator(_master_url)] = ""
    """How machines reach the master; empty takes the master's own address."""
    master_cert_name: Text = ""
    """Name to verify when TLS is used."""
    min_instances: Count = 0
    """Machines to keep even when there is nothing to do."""
    max_instances: PositiveInteger = 5
    """Most machines at a time."""
    max_idle_agent_period: PositiveDuration = 1200.0
    """How long a machine may be idle before it is ended."""
    max_agent_starting_period: PositiveDuration = 1200.0
    """How long a machine may take to join before it is replaced."""
    launch_error_timeout: Duration = 0.0
    """How long a failed launch is remembered."""
    launch_error_retries: Count = 0
    """How often a failed launch is tried again before work is refused."""
    agent_reconnect_attempts: Count = 5
    """Given to the agents."""
    agent_reconnect_backoff: Duration = 5.0
    """Given to the agents."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.min_instances > self.max_instances:
            text = f"must not be greater than max_instances, which is {self.max_instances}"
            raise broken_at((("min_instances",), text, self.min_instances))
        return self


class _CloudProvider(_Provider):
    """What machines of a real cloud have."""

    startup_script: Secret = ""
    """Run by root on the machine before the agent starts."""
    container_startup_script: Secret = ""
    """Run in the agent's container before the agent starts."""
    agent_docker_image: NonEmptyText = "resolute/agent"
    """Image of the agent."""
    agent_docker_network: NonEmptyText = "default"
    """Network of the agent's container."""
    agent_docker_runtime: NonEmptyText = "runc"
    """Runtime of the agent's container."""
    agent_fluent_image: Text | None = None
    """Has no effect; accepted for old configurations."""
    agent_config_file_contents: FreeMap | None = None
    """Written as the agent's configuration file."""


class LaunchRefusal(ConfigModel):
    """One launch that the local cloud refuses, as a real one might."""

    launch: PositiveInteger
    """Which launch, counted from 1."""
    error: Literal["no_capacity", "quota_exceeded", "bad_request", "transient"]
    """What it answers."""


class Interruption(ConfigModel):
    """One machine that the local cloud takes away, as a real one might."""

    instance: PositiveInteger
    """Which machine, counted from 1 in the order of their start."""
    after: Duration | None = None
    """How long after its start; instead of `after_steps`."""
    after_steps: Count | None = None
    """After how many training steps; instead of `after`."""
    notice: Duration | None = None
    """How long before the end it is told; null takes it without notice."""

    @model_validator(mode="after")
    def _one_moment(self) -> Self:
        if (self.after is None) == (self.after_steps is None):
            raise broken_rule("must have exactly one of the keys after and after_steps")
        return self


class LocalProvider(_Provider):
    """Machines that are processes on the master's own machine."""

    type: Literal["local"] = "local"
    """Tag of the provider."""
    slots_per_instance: PositiveInteger = 1
    """Slots of each machine."""
    boot_delay: Duration = 0.0
    """How long a machine takes to start."""
    price_per_hour: Annotated[Number, Field(ge=0)] = 0.0
    """What the ledger books for a machine's hour."""
    master_timeout: PositiveDuration = 600.0
    """How long a machine may be without its master before it ends itself."""
    container_runtime: Literal["process", "docker"] = "process"
    """What runs tasks on the machines: processes, or containers of this machine's Docker engine."""
    docker_host: Text = "unix:///var/run/docker.sock"
    """Socket of that engine."""
    refuse: tuple[LaunchRefusal, ...] = ()
    """Launches that are refused."""
    interruptions: tuple[Interruption, ...] = ()
    """Machines that are taken away."""


class AwsTag(ConfigModel):
    """One more tag of the machines."""

    key: NonEmptyText
    """Its key."""
    value: Text
    """Its value."""


class AwsNetworkInterface(ConfigModel):
    """Network of the machines."""

    public_ip: Flag = True
    """Give each a public address."""
    subnet_id: Text | None = None
    """Subnet, and with it the zone."""
    security_group_id: Text | None = None
    """Security group."""


def _price(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value):
        raise broken_rule('must be a price of digits with at most one decimal point, such as "1.25"')
    return value


class AwsProvider(_CloudProvider):
    """Machines of Amazon EC2."""

    type: Literal["aws"] = "aws"
    """Tag of the provider."""
    region: Text | None = None
    """Region; null takes the master's own, or AWS_DEFAULT_REGION."""
    image_id: Text | None = None
    """Machine image; null takes the release's image of the region."""
    instance_type: NonEmptyText = "g4dn.metal"
    """Kind of machine."""
    instance_slots: Count | None = None
    """Slots of it, where the type is not known."""
    cpu_slots_allowed: Flag = False
    """A machine without GPUs has one slot."""
    root_volume_size: Annotated[Count, Field(ge=MIN_DISK_GB)] = 200
    """Disk in GB."""
    ssh_key_name: NonEmptyText
    """Key pair for people who must log in."""
    iam_instance_profile_arn: Text | None = None
    """Role of the machines."""
    network_interface: AwsNetworkInterface = AwsNetworkInterface()
    """Network."""
    tag_key: NonEmptyText = "managed_by"
    """Key of the tag by which machines are found again."""
    tag_value: Text | None = None
    """Its value; null takes the master's own instance id."""
    instance_name: NonEmptyText = "determined-ai-agent"
    """Name tag."""
    custom_tags: tuple[AwsTag, ...] = ()
    """More tags."""
    log_group: Text | None = None
    """CloudWatch group for the agent's log."""
    log_stream: Text | None = None
    """CloudWatch stream for the agent's log."""
    spot: Flag = False
    """Use spot machines."""
    spot_max_price: Annotated[Text | None, BeforeValidator(_price)] = None
    """Highest price of a spot machine's hour; null means the on-demand price."""


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


_MACHINE_PREFIXES = (
    "n1-standard",
    "n1-highmem",
    "n1-highcpu",
    "n1-ultramem",
    "m2-ultramem",
    "n1-megamem",
    "c2-standard",
    "a2-highgpu",
    "a2-megagpu",
    "a2-ultragpu",
    "g2-standard",
    "n2-standard",
    "custom",
)
_GPU_COUNTS: Mapping[str, tuple[int, ...]] = {
    "": (0,),
    "nvidia-tesla-t4": (0, 1, 2, 4),
    "nvidia-tesla-p100": (0, 1, 2, 4),
    "nvidia-tesla-p4": (0, 1, 2, 4),
    "nvidia-tesla-v100": (0, 1, 2, 4, 8),
    "nvidia-tesla-a100": (0, 1, 2, 4, 8, 16),
    "nvidia-a100-80gb": (0, 1, 2, 4, 8),
    "nvidia-l4": (0, 1, 2, 4, 8),
}


def _machine_type(text: str) -> str:
    known = any(text.startswith(f"{prefix}-") for prefix in _MACHINE_PREFIXES)
    if len(text.split("-")) != 3 or not known:
        raise broken_rule(f"must have three parts joined by '-' and start with one of: {', '.join(_MACHINE_PREFIXES)}")
    return text


class GcpInstanceType(ConfigModel):
    """Kind of machine."""

    machine_type: Annotated[Text, AfterValidator(_machine_type)] = "n1-standard-32"
    """CPUs and memory."""
    gpu_type: Text = "nvidia-tesla-t4"
    """Kind of GPU; empty for none."""
    gpu_num: Count = 4
    """How many of them."""
    preemptible: Flag = False
    """Use machines that may be taken away."""

    @model_validator(mode="after")
    def _gpus(self) -> Self:
        counts = _GPU_COUNTS.get(self.gpu_type)
        if counts is None:
            text = f"is not a known GPU; use one of: {', '.join(sorted(name for name in _GPU_COUNTS if name))}"
            raise broken_at((("gpu_type",), text, self.gpu_type))
        if self.gpu_num not in counts:
            allowed = ", ".join(str(count) for count in counts)
            text = f"must be one of {allowed} for the GPU '{self.gpu_type}'"
            raise broken_at((("gpu_num",), text, self.gpu_num))
        return self


class GcpProvider(_CloudProvider):
    """Machines of Google Compute Engine."""

    type: Literal["gcp"] = "gcp"
    """Tag of the provider."""
    base_config: FreeMap | None = None
    """Raw properties of the machine, under the keys below."""
    project: Text | None = None
    """Project; null takes the master's own."""
    zone: Text | None = None
    """Zone; null takes the master's own."""
    boot_disk_size: Annotated[Count, Field(ge=MIN_DISK_GB)] = 200
    """Disk in GB."""
    boot_disk_source_image: Text | None = None
    """Machine image; null takes the release's."""
    boot_disk_type: Text | None = None
    """Kind of disk; null takes pd-standard."""
    labels: dict[str, Text] = Field(default_factory=dict)
    """More labels."""
    label_key: NonEmptyText = "managed-by"
    """Key of the label by which machines are found again."""
    label_value: Text | None = None
    """Its value; null takes the master's own name."""
    name_prefix: Text | None = None
    """Start of the machines' names; null takes the master's own name."""
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
    """Send the agent's log to the cloud."""


PROVIDER_TYPES = ("aws", "gcp", "local")
_TYPES = TaggedUnion("type", PROVIDER_TYPES, {"hpc": "HPC launchers are not supported; use agents of your own"})

Provider = Annotated[
    Annotated[AwsProvider, Tag("<aws>")]
    | Annotated[GcpProvider, Tag("<gcp>")]
    | Annotated[LocalProvider, Tag("<local>")],
    Discriminator(_TYPES.member),
    BeforeValidator(_TYPES.check),
]
