"""The container that an agent runs, rendered from the committed state when it is sent: tokens are never stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.config import MasterConfig
from resolute.config.task_defaults import DEFAULT_SHM_BYTES, TaskContainerDefaults
from resolute.wire.agent_link import PYTHON_VARIABLE, BindMount, ContainerOptions, ContainerSpec, HostDevice
from resolute.wire.states import SlotKind
from resolute_master.agents.task_users import TaskUsers
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ContainerId, PoolName, UserId
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.lifecycle.cluster import ClusterState

LAUNCHER = ("python3", "-m", "resolute.launch")
"""Our launcher runs every task: it fetches the context, meets its peers and runs the entrypoint."""

SHARED_FS_IN_CONTAINER = "/determined_shared_fs"

FORCED_NETWORK = "host"
"""Members of a gang on several machines meet at the machines' own addresses."""

TaskToken = Callable[[AllocationId, UserId], str]
"""Signs a token that is valid until the allocation ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDefaults:
    """Defaults of the cluster or a pool for containers, where the experiment does not, or cannot, set them."""

    network_mode: str = "bridge"
    shm_bytes: int = 0
    """0 leaves it to the runtime."""
    startup_hook: str = field(default="", repr=False)
    """A shell script that tasks run before their own; empty for none."""
    network_variables: Mapping[str, str] = field(default_factory=dict)
    """How the members of a gang reach each other, as their libraries read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRenderer:
    """Needs how to sign, and what containers get by default."""

    task_token: TaskToken
    """What the task reports with."""
    user_token: TaskToken
    """What its owner's commands use inside the task."""
    task_users: TaskUsers = field(default_factory=TaskUsers)
    defaults: Mapping[PoolName, ContainerDefaults] = field(default_factory=dict)
    """By pool; a pool that is not named gets the plain ones."""
    configured_paths: tuple[str, ...] = ()
    """Host paths that the operator gives to tasks."""
    code_of: Callable[[str], str | None] = lambda _: None
    """Model code by its hash, for `ContainerSpec.code`; None leaves it to the task to fetch it."""
    trace_of: Callable[[ContainerId], str] = lambda _: ""
    """The trace that a container's start belongs to, as a W3C `traceparent`; empty for none."""

    def render(self, state: ClusterState, allocation: Allocation, container: ContainerId) -> ContainerSpec | None:
        """None when there is nothing to start any more."""
        member = next((c for c in allocation.containers if c.id == container), None)
        trial = state.get(Trial, allocation.trial_id) if allocation.trial_id is not None else None
        if member is None or member.ended or trial is None:
            return None
        experiment = state.get(Experiment, trial.experiment_id)
        if experiment is None:
            return None
        owner = state.get(User, experiment.owner)
        assert owner is not None
        kind, config = _kind_of(state, member), experiment.config
        defaults = self.defaults.get(allocation.pool, ContainerDefaults())
        return ContainerSpec(
            container_id=member.id,
            allocation_id=allocation.id,
            task_id=allocation.task_id,
            task_type=allocation.task_type,
            description=f"exp-{experiment.id}-trial-{trial.id}-rank-{member.rank}",
            slots=member.slots,
            environment=self._environment(allocation, member, trial, config, owner, kind),
            command=LAUNCHER,
            image=_image(config, kind),
            shared_directories=_shared_directories(config),
            shm_bytes=(config.get("resources") or {}).get("shm_size") or defaults.shm_bytes,
            options=self._options(config, allocation, defaults, self.task_users.of_container(state, experiment, owner)),
            run_as=self.task_users.of_process(state, experiment, owner),
            code=self.code_of(experiment.context_hash),
            alone=len(allocation.containers) == 1,
            startup_hook=defaults.startup_hook,
        )

    def _environment(
        self, allocation: Allocation, member: Container, trial: Trial, config: Mapping[str, Any], owner: User, kind: str
    ) -> Mapping[str, str]:
        variables = {
            "DET_TASK_ID": allocation.task_id,
            "DET_ALLOCATION_ID": allocation.id,
            "DET_TASK_TYPE": allocation.task_type.value,
            "DET_RESOURCES_ID": member.id,
            "DET_RESOURCES_TYPE": "docker-container",
            "DET_SESSION_TOKEN": self.task_token(allocation.id, owner.id),
            "DET_USER": owner.username,
            "DET_USER_TOKEN": self.user_token(allocation.id, owner.id),
            "DET_USE_TLS": "false",
            "DET_SEGMENT_ENABLED": "false",
            "DET_TASK_LOGGING_METADATA": json.dumps(
                {"task_id": allocation.task_id, "allocation_id": allocation.id, "container_id": member.id}
            ),
            "DET_EXPERIMENT_ID": str(trial.experiment_id),
            "DET_TRIAL_ID": str(trial.id),
            "DET_TRIAL_RUN_ID": str(allocation.run_id),
            "DET_TRIAL_SEED": str(trial.seed),
            "DET_EXPERIMENT_CONFIG": json.dumps(_shown_to_the_task(config)),
            "DET_HPARAMS": json.dumps(trial.hparams),
            "DET_STEPS_COMPLETED": str(allocation.resumed_steps),
            **{name: str(port) for name, port in allocation.ports.items()},
        }
        if allocation.resumed_checkpoint is not None:
            variables["DET_LATEST_CHECKPOINT"] = allocation.resumed_checkpoint
        trace = self.trace_of(member.id)
        if trace:
            variables["TRACEPARENT"] = trace  # the name that OpenTelemetry gives it
        network = self.defaults.get(allocation.pool, ContainerDefaults()).network_variables
        return {**variables, **network, **user_variables(config, kind), **_chosen_python(config)}

    def _options(
        self, config: Mapping[str, Any], allocation: Allocation, defaults: ContainerDefaults, user: str
    ) -> ContainerOptions:
        """What only a runtime with images honours."""
        environment = config.get("environment") or {}
        several = len({member.agent for member in allocation.containers}) > 1
        ports = [*allocation.ports.values(), *(environment.get("ports") or {}).values()]
        return ContainerOptions(
            force_pull=bool(environment.get("force_pull_image")),
            registry_auth={k: str(v) for k, v in (environment.get("registry_auth") or {}).items() if v},
            network_mode=FORCED_NETWORK if several else defaults.network_mode,
            mounts=tuple(BindMount(**mount) for mount in config.get("bind_mounts") or ()),
            devices=tuple(HostDevice(**each) for each in (config.get("resources") or {}).get("devices") or ()),
            add_capabilities=tuple(environment.get("add_capabilities") or ()),
            drop_capabilities=tuple(environment.get("drop_capabilities") or ()),
            ports=tuple(int(port) for port in ports),
            user=user,
            configured_paths=self.configured_paths,
        )


def _shown_to_the_task(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the credentials of the registry: the agent pulls the image, and they may be the operator's
    (`task_container_defaults.registry_auth`), not those of the task's user."""
    environment = config.get("environment") or {}
    if not environment.get("registry_auth"):
        return config
    return {**config, "environment": {**environment, "registry_auth": None}}


def _kind_of(state: ClusterState, member: Container) -> str:
    """What the member's slots are made of, which decides image and variables. Artificial slots count as `cpu`."""
    agent = state.get(Agent, member.agent)
    kinds = {slot.device.kind for slot in agent.slots if slot.index in member.slots} if agent is not None else set()
    return next((kind.value for kind in (SlotKind.CUDA, SlotKind.ROCM) if kind in kinds), SlotKind.CPU.value)


def user_variables(config: Mapping[str, Any], device: str) -> dict[str, str]:
    """`environment.environment_variables` for one kind of device; `NAME` without a value is an empty one."""
    variables = (config.get("environment") or {}).get("environment_variables") or []
    if isinstance(variables, Mapping):
        variables = variables.get(device) or []
    return {name: value for name, _, value in (str(entry).partition("=") for entry in variables)}


def _chosen_python(config: Mapping[str, Any]) -> dict[str, str]:
    """`environment.python`, for the launcher. It wins over a variable, which may come from the cluster's defaults."""
    python = (config.get("environment") or {}).get("python")
    return {PYTHON_VARIABLE: str(python)} if python else {}


def _image(config: Mapping[str, Any], kind: str) -> str:
    image = (config.get("environment") or {}).get("image") or ""
    return str(image.get(kind) or "") if isinstance(image, Mapping) else str(image)


def _shared_directories(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    storage = config.get("checkpoint_storage") or {}
    if storage.get("type") == "shared_fs":
        return ((str(storage["host_path"]), SHARED_FS_IN_CONTAINER),)
    if storage.get("type") == "directory":
        path = str(storage["container_path"])
        return ((path, path),)
    return ()


def _network_variables(defaults: TaskContainerDefaults) -> dict[str, str]:
    named = {
        "DET_INTER_NODE_NETWORK_INTERFACE": defaults.dtrain_network_interface,
        "NCCL_PORT_RANGE": defaults.nccl_port_range,
        "GLOO_PORT_RANGE": defaults.gloo_port_range,
    }
    return {name: value for name, value in named.items() if value}


def container_defaults(config: MasterConfig) -> dict[PoolName, ContainerDefaults]:
    """Defaults of each pool for containers whose experiment does not set them."""
    return {
        PoolName(pool.pool_name): ContainerDefaults(
            network_mode=defaults.network_mode,
            shm_bytes=defaults.shm_size_bytes if defaults.shm_size_bytes != DEFAULT_SHM_BYTES else 0,
            startup_hook=defaults.startup_hook or "",
            network_variables=_network_variables(defaults),
        )
        for pool in config.resource_pools
        for defaults in (config.task_defaults_of(pool),)
    }
