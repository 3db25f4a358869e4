"""Defaults of a cluster or a pool for every task."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from resolute.config.base import ConfigModel, Count, Flag, NonEmptyText, PositiveInteger, Secret, SecretMark, Text
from resolute.config.durations import WholeSeconds
from resolute.config.environment import (
    BindMount,
    EnvironmentVariables,
    PodSpec,
    RegistryAuth,
    per_device_type,
)
from resolute.config.log_policies import LogPolicies
from resolute.config.resources import Devices
from resolute.config.training import Pbs, Slurm

DEFAULT_SHM_BYTES = 4 * 1024**3
DEFAULT_PREEMPTION_TIMEOUT_S = 3600


class PartialImages(ConfigModel):
    """Images for some kinds of device."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"cpu", "cuda", "rocm"})

    cpu: NonEmptyText | None = None
    """On machines without accelerators."""
    cuda: NonEmptyText | None = None
    """On NVIDIA GPUs (old name: gpu)."""
    rocm: NonEmptyText | None = None
    """On AMD GPUs."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        return per_device_type(value, str)


class KubernetesDefaults(ConfigModel):
    """For Kubernetes only."""

    max_slots_per_pod: PositiveInteger | None = None
    """Most slots of a pod."""


class TaskContainerDefaults(ConfigModel):
    """Merged under every task's configuration; a pool's block over the cluster's."""

    shm_size_bytes: Annotated[Count, Field(gt=0)] = DEFAULT_SHM_BYTES
    """Shared memory in bytes."""
    network_mode: NonEmptyText = "bridge"
    """Network of the containers."""
    preemption_timeout: WholeSeconds = DEFAULT_PREEMPTION_TIMEOUT_S
    """Seconds that a preempted task has to end."""
    dtrain_network_interface: Text | None = None
    """Network interface of distributed training; null finds one."""
    nccl_port_range: Text | None = None
    """Ports of NCCL."""
    gloo_port_range: Text | None = None
    """Ports of Gloo."""
    image: PartialImages = PartialImages()
    """Container images."""
    environment_variables: Annotated[EnvironmentVariables, SecretMark.VARIABLES] = EnvironmentVariables()
    """Variables as NAME=VALUE."""
    registry_auth: RegistryAuth | None = None
    """Credentials of the image registry."""
    force_pull_image: Flag = False
    """Pull images even if they are present."""
    bind_mounts: tuple[BindMount, ...] = ()
    """Directories of the machine."""
    devices: Devices = ()
    """Devices of the machine."""
    add_capabilities: tuple[Text, ...] = ()
    """Linux capabilities to add."""
    drop_capabilities: tuple[Text, ...] = ()
    """Linux capabilities to take away."""
    work_dir: Text | None = None
    """Working directory of commands, notebooks and shells."""
    startup_hook: Secret | None = None
    """Shell script that every task sources before `startup-hook.sh` of its context."""
    log_policies: LogPolicies = ()
    """Actions for matching lines of a log."""
    cpu_pod_spec: PodSpec | None = None
    """For Kubernetes only."""
    gpu_pod_spec: PodSpec | None = None
    """For Kubernetes only."""
    checkpoint_gc_pod_spec: PodSpec | None = None
    """For Kubernetes only."""
    kubernetes: KubernetesDefaults | None = None
    """For Kubernetes only."""
    slurm: Slurm | None = None
    """For HPC schedulers only."""
    pbs: Pbs | None = None
    """For HPC schedulers only."""

    def over(self, cluster: Self) -> Self:
        """This pool's block folded over the cluster's."""
        values: dict[str, Any] = {
            name: getattr(self if name in self.model_fields_set else cluster, name) for name in type(self).model_fields
        }
        values["image"] = _first_image(self.image, cluster.image)
        values["environment_variables"] = _by_name(self.environment_variables, cluster.environment_variables)
        values["force_pull_image"] = self.force_pull_image or cluster.force_pull_image
        for name in ("add_capabilities", "drop_capabilities"):
            values[name] = tuple(sorted({*getattr(self, name), *getattr(cluster, name)}))
        for name in ("bind_mounts", "devices"):
            values[name] = _by_key("container_path", getattr(self, name), getattr(cluster, name))
        values["log_policies"] = _policies(self.log_policies, cluster.log_policies)
        if self.slurm is not None and cluster.slurm is not None:
            joined = (*(self.slurm.sbatch_args or ()), *(cluster.slurm.sbatch_args or ()))
            values["slurm"] = self.slurm.model_copy(update={"sbatch_args": joined})
        if self.pbs is not None and cluster.pbs is not None:
            joined = (*(self.pbs.pbsbatch_args or ()), *(cluster.pbs.pbsbatch_args or ()))
            values["pbs"] = self.pbs.model_copy(update={"pbsbatch_args": joined})
        return type(self).model_construct(_fields_set=self.model_fields_set | cluster.model_fields_set, **values)

    def as_defaults(self, *, has_slots: bool) -> dict[str, Any]:
        """The part of an experiment's configuration that this block defines."""
        written = self.model_dump(mode="json")
        given = self.model_fields_set
        names = ("image", "environment_variables", "registry_auth", "add_capabilities", "drop_capabilities")
        environment = {name: written[name] for name in (*names, "force_pull_image") if name in given}
        pod_spec = written["gpu_pod_spec" if has_slots else "cpu_pod_spec"]
        if pod_spec is not None:
            environment["pod_spec"] = pod_spec
        defaults: dict[str, Any] = {
            name: written[name] for name in ("bind_mounts", "slurm", "pbs", "log_policies") if name in given
        }
        defaults["preemption_timeout"] = self.preemption_timeout
        if environment:
            defaults["environment"] = environment
        if self.devices:
            defaults["resources"] = {"devices": written["devices"]}
        return defaults


def _first_image(pool: PartialImages, cluster: PartialImages) -> PartialImages:
    return PartialImages(cpu=pool.cpu or cluster.cpu, cuda=pool.cuda or cluster.cuda, rocm=pool.rocm or cluster.rocm)


def _by_name(pool: EnvironmentVariables, cluster: EnvironmentVariables) -> EnvironmentVariables:
    def joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
        names = {entry.partition("=")[0] for entry in first}
        return (*first, *(entry for entry in second if entry.partition("=")[0] not in names))

    return EnvironmentVariables(
        cpu=joined(pool.cpu, cluster.cpu), cuda=joined(pool.cuda, cluster.cuda), rocm=joined(pool.rocm, cluster.rocm)
    )


def _by_key(key: str, pool: tuple[Any, ...], cluster: tuple[Any, ...]) -> tuple[Any, ...]:
    taken = {getattr(one, key) for one in pool}
    return (*pool, *(one for one in cluster if getattr(one, key) not in taken))


def _policies(pool: LogPolicies, cluster: LogPolicies) -> LogPolicies:
    names = {one.name for one in pool if one.name is not None}
    pairs = {(one.action, one.pattern) for one in pool if one.name is None}
    added = [one for one in cluster if (one.name not in names if one.name else (one.action, one.pattern) not in pairs)]
    return (*pool, *added)
