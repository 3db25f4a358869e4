"""Resource pools."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resolute.wire.rest.enums import DeviceType, FittingPolicy, ResourcePoolType, SchedulerType
from resolute.wire.rest.jobs import QueueStats
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class K8PriorityClass:
    """A priority class of Kubernetes."""

    priority_class: str | None = None
    priority_value: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePoolPrioritySchedulerDetail:
    """Settings of a priority scheduler."""

    default_priority: int
    preemption: bool
    k8_priorities: tuple[K8PriorityClass, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCustomTag:
    """A tag that instances carry."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePoolAwsDetail:
    """Settings of a pool on AWS."""

    iam_instance_profile_arn: str
    image_id: str
    instance_name: str
    public_ip: bool
    region: str
    root_volume_size: int
    security_group_id: str
    spot_enabled: bool
    ssh_key_name: str
    tag_key: str
    tag_value: str
    custom_tags: tuple[AwsCustomTag, ...] = ()
    instance_type: str | None = None
    log_group: str | None = None
    log_stream: str | None = None
    spot_max_price: str | None = None
    subnet_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePoolGcpDetail:
    """Settings of a pool on GCP; periods in seconds."""

    boot_disk_size: int
    boot_disk_source_image: str
    external_ip: bool
    gpu_num: int
    gpu_type: str
    label_key: str
    label_value: str
    machine_type: str
    name_prefix: str
    network: str
    operation_timeout_period: float
    preemptible: bool
    project: str
    service_account_email: str
    service_account_scopes: tuple[str, ...]
    zone: str
    network_tags: tuple[str, ...] = ()
    subnetwork: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePoolDetail:
    """Settings by kind of provider and scheduler."""

    aws: ResourcePoolAwsDetail | None = None
    gcp: ResourcePoolGcpDetail | None = None
    priority_scheduler: ResourcePoolPrioritySchedulerDetail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePool:
    """A pool; `max_idle_agent_period` and `max_agent_starting_period` in seconds."""

    agent_docker_image: str
    agent_docker_network: str
    agent_docker_runtime: str
    agent_fluent_image: str
    aux_container_capacity: int
    aux_container_capacity_per_agent: int
    aux_containers_running: int
    cluster_name: str
    container_startup_script: str
    default_aux_pool: bool
    default_compute_pool: bool
    description: str
    details: ResourcePoolDetail
    image_id: str
    instance_type: str
    location: str
    master_cert_name: str
    master_url: str
    max_agent_starting_period: float
    max_agents: int
    max_idle_agent_period: float
    min_agents: int
    name: str
    num_agents: int
    preemptible: bool
    resource_manager_metadata: Mapping[str, str]
    scheduler_fitting_policy: FittingPolicy
    scheduler_type: SchedulerType
    slot_type: DeviceType
    slots_available: int
    slots_used: int
    startup_script: str
    type: ResourcePoolType
    accelerator: str | None = None
    slots_per_agent: int | None = None
    stats: QueueStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetResourcePoolsResponse:
    """All pools."""

    pagination: Pagination | None = None
    resource_pools: tuple[ResourcePool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetResourcePoolsQuery:
    """Query of the pool list."""

    limit: int = 0
    offset: int = 0
    unbound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRPToWorkspaceRequest:
    """Workspaces that the pool is for, beside those that it is for already; by id, by name or both."""

    resource_pool_name: str
    workspace_ids: tuple[int, ...] = ()
    workspace_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbindRPFromWorkspaceRequest:
    """Workspaces that the pool is not for any more."""

    resource_pool_name: str
    workspace_ids: tuple[int, ...] = ()
    workspace_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteRPWorkspaceBindingsRequest:
    """All workspaces of the pool; with none, every workspace may use it."""

    resource_pool_name: str
    workspace_ids: tuple[int, ...] = ()
    workspace_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWorkspacesBoundToRPQuery:
    """Query of a pool's workspaces."""

    limit: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWorkspacesBoundToRPResponse:
    """The workspaces of a pool; none if every workspace may use it."""

    pagination: Pagination | None = None
    workspace_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRPsBoundToWorkspaceQuery:
    """Query of the pools that a workspace may use."""

    limit: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRPsBoundToWorkspaceResponse:
    """Names of the pools that a workspace may use."""

    pagination: Pagination | None = None
    resource_pools: tuple[str, ...] = ()
