"""Resource pools, their scheduler, and the manager that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from resolute.config.base import ConfigModel, Count, Flag, FreeMap, NonEmptyText, Text, broken_at, broken_rule
from resolute.config.budgets import Budget
from resolute.config.durations import Duration, PositiveDuration, format_duration
from resolute.config.providers import Provider
from resolute.config.resources import Priority
from resolute.config.task_defaults import TaskContainerDefaults

DEFAULT_POOL = "default"
DEFAULT_PRIORITY = 42
DEFAULT_RECONNECT_WAIT_S = 25.0  # five attempts, five seconds apart


def _not_round_robin(name: Any) -> Any:
    if name == "round_robin":
        raise broken_rule("round_robin is not supported; use the priority scheduler with equal priorities")
    return name


class Scheduler(ConfigModel):
    """The scheduler of a pool."""

    type: Annotated[Literal["priority", "fair_share"], BeforeValidator(_not_round_robin)] = "priority"
    """`priority` or `fair_share`."""
    preemption: Flag = False
    """Priority only: more important work may stop less important work."""
    default_priority: Priority = DEFAULT_PRIORITY
    """Priority only: the default for work without one."""
    fitting_policy: Literal["best", "worst"] = "best"
    """Fill machines (`best`) or spread over them (`worst`)."""
    allow_heterogeneous_fits: Flag = False
    """Work of several machines may use machines of different sizes."""
    hierarchical_shares: Flag = False
    """Fair share only: share among workspaces, then their users, then their jobs; else among jobs."""
    usage_half_life: PositiveDuration | None = None
    """With hierarchical_shares: the age at which past usage counts half; null counts only what users hold now."""
    min_runtime: Duration = 0.0
    """Time that work runs before it may be preempted for other work."""
    preemption_grace: Duration = 0.0
    """Time that work waits before it may preempt other work."""

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        owners = {
            "preemption": "priority",
            "default_priority": "priority",
            "hierarchical_shares": "fair_share",
            "usage_half_life": "fair_share",
        }
        found = [
            ((name,), f"belongs to the {owner} scheduler; remove it", getattr(self, name))
            for name, owner in owners.items()
            if self.type != owner and getattr(self, name) != type(self).model_fields[name].default
        ]
        if not found and self.usage_half_life is not None and not self.hierarchical_shares:
            advice = "needs hierarchical_shares: true; a share of each job has no past, for the next job is a new one"
            found = [(("usage_half_life",), advice, format_duration(self.usage_half_life))]
        if found:
            raise broken_at(*found)
        return self


LOCAL_STORAGES = ("shared_fs", "directory")
"""Types of checkpoint_storage that are a directory of the machine."""


class ResourcePool(ConfigModel):
    """Machines of one kind, with one queue."""

    dropped: ClassVar[frozenset[str]] = frozenset({"agent_reattach_enabled"})

    pool_name: NonEmptyText
    """Its name, unique in the cluster."""
    description: Text = ""
    """A description for users."""
    max_aux_containers_per_agent: Count = 100
    """Tasks without slots that a machine may run at a time."""
    agent_reconnect_wait: Duration = DEFAULT_RECONNECT_WAIT_S
    """Time without contact to an agent before its work is started elsewhere."""
    scheduler: Scheduler | None = None
    """Its scheduler; null means the manager's."""
    task_container_defaults: TaskContainerDefaults | None = None
    """Over the cluster's block of that name."""
    provider: Provider | None = None
    """Makes the pool elastic."""
    shared_file_system: Flag = False
    """All its rented machines mount one file system, which contains a checkpoint_storage of type shared_fs or directory."""
    budget: Budget = Budget()
    """Limits on the cost of its machines."""

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, value: Any) -> Any:
        return renamed(value, {"max_cpu_containers_per_agent": "max_aux_containers_per_agent"})

    def loses_files_of(self, storage_type: str | None) -> str:
        """Why checkpoints in a storage of that type would end with a machine of this pool, and what to do; empty where they would
        not."""
        rented = self.provider is not None and not self.provider.on_masters_machine
        if storage_type not in LOCAL_STORAGES or not rented or self.shared_file_system:
            return ""
        return (
            f"pool '{self.pool_name}' rents its machines, and checkpoint_storage of type {storage_type} is a directory that ends "
            "with the machine; use a storage of type s3, gcs or azure, or, where one file system is mounted on all machines of "
            "the pool, set shared_file_system: true for the pool"
        )


class ResourceManager(ConfigModel):
    """What all pools share."""

    type: Literal["agent"] = "agent"
    """Tag of the manager."""
    cluster_name: NonEmptyText = "default"
    """Name of the manager (old name: name)."""
    scheduler: Scheduler = Scheduler()
    """Scheduler of pools without one of their own."""
    default_aux_resource_pool: Text = DEFAULT_POOL
    """Default pool of tasks without slots."""
    default_compute_resource_pool: Text = DEFAULT_POOL
    """Default pool of tasks with slots."""
    no_default_resource_pools: Flag = False
    """Every task must name its pool."""
    require_authentication: Flag = False
    """Agents must show a certificate."""
    client_ca: Text = ""
    """File of the authority of those certificates."""
    metadata: FreeMap = Field(default_factory=dict)
    """Free-form, shown by the API."""

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, value: Any) -> Any:
        value = renamed(
            value,
            {
                "name": "cluster_name",
                "default_cpu_resource_pool": "default_aux_resource_pool",
                "default_gpu_resource_pool": "default_compute_resource_pool",
            },
        )
        if isinstance(value, Mapping) and value.get("no_default_resource_pools") is True:
            pools = ("default_aux_resource_pool", "default_compute_resource_pool")
            given = [
                ((name,), "must be empty with no_default_resource_pools", value[name])
                for name in pools
                if value.get(name)
            ]
            if given:
                raise broken_at(*given)
            return {**value, **dict.fromkeys(pools, "")}
        return value


def renamed(value: Any, old_names: Mapping[str, str]) -> Any:
    """Read old names of keys; where both are given the old one wins, as it always did."""
    if not isinstance(value, Mapping):
        return value
    read = {key: inner for key, inner in value.items() if key not in old_names}
    for old, new in old_names.items():
        if value.get(old) is not None:
            read[new] = value[old]
    return read
