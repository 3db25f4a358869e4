"""Pure: the requests to a container engine, from a container's specification and the agent's own facts about it.

The body is that of `POST /containers/create` of the Docker Engine API. Nothing here looks at the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from resolute.errors import InvalidInput
from resolute.host_paths import HostPathRules
from resolute.wire.agent_link import ContainerOptions, ContainerSpec, Device
from resolute.wire.states import SlotKind
from resolute_agent.environment import RUN_DIR, Place, task_environment
from resolute_agent.reach import REMEDY
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.docker_watch import OWNER_LABEL

WHEEL_IN_CONTAINER = "/opt/resolute"
"""Where our package is in every container: on `PYTHONPATH`, not installed, so that the image's own stay untouched."""

DEFAULT_SHM_BYTES = 4 * 1024**3
"""Default shared memory of a container, as in the contract; data loaders fail with Docker's 64 MiB."""

NEVER_GIVEN = ("MKNOD", "NET_RAW", "SETFCAP")
"""Capabilities that an engine gives to root in a container by default and that tasks never get: to create device files, to send
raw packets, and to give capabilities to programs. Package installers and shells need the rest."""

LABEL_TYPE, LABEL_ID = "ai.determined.container.type", "ai.determined.container.id"
LABEL_AGENT, LABEL_CLUSTER = "ai.determined.container.agent", "ai.determined.container.cluster"
LABEL_DEVICES, LABEL_DESCRIPTION = "ai.determined.container.devices", "ai.determined.container.description"
LABEL_ALLOCATION = "ai.resolute.allocation"

_DESCRIPTION_CHARACTERS = 63
_LOOPBACK = ("127.", "localhost", "[::1]", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of an agent for every container of its engine. `memory_bytes` 0 sets no limit; a limit of -1 is none."""

    memory_bytes: int = 0
    ulimits: Mapping[str, int] = field(default_factory=dict)
    rules: HostPathRules = field(default_factory=lambda: HostPathRules(remedy=REMEDY))
    """What experiments may name of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Paths of one container on the machine, and facts of its image and the machine.

    `wheel` is the directory that holds our package; `run` becomes the run directory. `image_environment` are the
    variables that the image itself sets, `render_group` the group of the machine's AMD devices.
    """

    owner: str
    run: str
    wheel: str
    image_environment: Sequence[str] = ()
    render_group: str = ""


def why_not(spec: ContainerSpec, environment: Mapping[str, str]) -> str:
    """Why such a container cannot work on any engine; empty when it may."""
    if not spec.command:
        return "the container has no command"
    if not spec.image:
        return "the container has no image; set environment.image, or task_container_defaults.image of the cluster"
    host = environment.get("DET_MASTER_HOST", "")
    if host.startswith(_LOOPBACK) and spec.options.network_mode != "host":
        return (
            f"tasks in network {spec.options.network_mode!r} cannot reach the master at {host}: set "
            "container_master_host of the agent to an address that containers reach, or network_mode: host in "
            "task_container_defaults"
        )
    return ""


def create_body(
    spec: ContainerSpec, context: TaskContext, around: Surroundings, options: EngineOptions
) -> dict[str, Any]:
    """The whole request to make the container."""
    environment = container_environment(spec, context, around)
    return {
        "Image": spec.image,
        "Entrypoint": list(spec.command),  # the image's own entrypoint is for manual runs
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
        "WorkingDir": environment["DET_WORKDIR"],
        "User": spec.options.user,
        "Labels": _labels(spec, context, around),
        "ExposedPorts": {f"{port}/tcp": {} for port in spec.options.ports},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, context, around, options),
    }


def container_environment(spec: ContainerSpec, context: TaskContext, around: Surroundings) -> dict[str, str]:
    """The task's variables. The image's `PATH` stays; our package is first on `PYTHONPATH`."""
    place = Place(
        run_dir=RUN_DIR, tmp_dir="/tmp", private_root=True, python_bin="", package_roots=(WHEEL_IN_CONTAINER,)
    )
    environment = task_environment(spec, context.environment, context.devices, place)
    own = {name: value for name, _, value in (entry.partition("=") for entry in around.image_environment)}
    for name in ("PATH", "LANG"):
        if name in own and name not in spec.environment:
            environment[name] = own[name]
    if own.get("PYTHONPATH") and "PYTHONPATH" not in spec.environment:
        environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:{own['PYTHONPATH']}"
    return environment


def _labels(spec: ContainerSpec, context: TaskContext, around: Surroundings) -> dict[str, str]:
    return {
        LABEL_TYPE: "task-container",
        LABEL_ID: spec.container_id,
        LABEL_AGENT: context.environment.get("DET_AGENT_ID", ""),
        LABEL_CLUSTER: context.environment.get("DET_CLUSTER_ID", ""),
        LABEL_DEVICES: ",".join(str(device.index) for device in context.devices),
        LABEL_DESCRIPTION: spec.description[:_DESCRIPTION_CHARACTERS],
        LABEL_ALLOCATION: spec.allocation_id,
        OWNER_LABEL: around.owner,
    }


def _host_config(
    spec: ContainerSpec, context: TaskContext, around: Surroundings, options: EngineOptions
) -> dict[str, Any]:
    asked = spec.options
    rocm = any(device.kind is SlotKind.ROCM for device in context.devices)
    config: dict[str, Any] = {
        "Init": True,  # a first process without handlers would ignore SIGTERM and reap no children
        "AutoRemove": False,  # how it ended must outlive the agent
        "RestartPolicy": {"Name": "no"},
        "NetworkMode": asked.network_mode,
        "PublishAllPorts": asked.network_mode != "host" and bool(asked.ports),
        "ShmSize": spec.shm_bytes or DEFAULT_SHM_BYTES,
        "CapAdd": list(asked.add_capabilities),
        "CapDrop": _dropped(asked),
        "SecurityOpt": [] if _is_root(asked) else ["no-new-privileges:true"],
        "Mounts": _mounts(spec, around),
        "Devices": _device_files(spec, rocm=rocm),
        "DeviceRequests": _device_requests(context.devices),
        # The engine keeps every byte until we have it, whatever its administrator set for others.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1000000g", "mode": "blocking"}},
        "Ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in sorted(options.ulimits.items())],
    }
    if options.memory_bytes:
        # Swap on top would let a task that is out of memory slow the whole machine down first.
        config |= {"Memory": options.memory_bytes, "MemorySwap": options.memory_bytes}
    if rocm:
        config["SecurityOpt"].append("seccomp=unconfined")
        config["GroupAdd"] = [around.render_group or "video"]
    return config


def _is_root(asked: ContainerOptions) -> bool:
    """Whether the container may begin as root: it is requested, or the image decides."""
    return asked.user.partition(":")[0] in ("", "0")


def _dropped(asked: ContainerOptions) -> list[str]:
    """The capabilities that no task gets unless they were requested. Another user than root needs none at all."""
    kept = {name.upper().removeprefix("CAP_") for name in asked.add_capabilities}
    ours = NEVER_GIVEN if _is_root(asked) else ("ALL",)
    return [*asked.drop_capabilities, *(name for name in ours if name not in {*kept, *asked.drop_capabilities})]


def _mounts(spec: ContainerSpec, around: Surroundings) -> list[dict[str, Any]]:
    fixed = [_mount(around.run, RUN_DIR), _mount(around.wheel, WHEEL_IN_CONTAINER, read_only=True)]
    shared = [_mount(host, inside) for host, inside in spec.shared_directories]
    work_dir = spec.working_directory or f"{RUN_DIR}/workdir"
    asked = [
        _mount(
            mount.host_path,
            mount.container_path if mount.container_path.startswith("/") else f"{work_dir}/{mount.container_path}",
            read_only=mount.read_only,
            propagation=mount.propagation,
        )
        for mount in spec.options.mounts
    ]
    return [*fixed, *shared, *asked]


def _mount(host: str, inside: str, *, read_only: bool = False, propagation: str = "rprivate") -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": host,
        "Target": inside,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": propagation},
    }


def _device_files(spec: ContainerSpec, *, rocm: bool) -> list[dict[str, str]]:
    asked = [(one.host_path, one.container_path, one.mode) for one in spec.options.devices]
    amd = [(path, path, "rwm") for path in ("/dev/kfd", "/dev/dri")] if rocm else []
    return [
        {"PathOnHost": host, "PathInContainer": inside, "CgroupPermissions": mode} for host, inside, mode in asked + amd
    ]


def _device_requests(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """NVIDIA GPUs and MIG instances by their ids. AMD devices are files; which of them are used is a variable's matter."""
    cuda = [device.uuid for device in devices if device.kind is SlotKind.CUDA]
    if not cuda:
        return []
    return [{"Driver": "nvidia", "DeviceIDs": cuda, "Capabilities": [["gpu", "compute", "utility"]]}]


def auth_for(credentials: Mapping[str, str], image: str) -> dict[str, str] | None:
    """A task's credentials if they are for the image's registry; `None` leaves it to the machine's own.

    Raises `InvalidInput` when they name another registry: pulling without them would fail with a worse text.
    """
    if not credentials:
        return None
    named = credentials.get("serveraddress", "").removeprefix("https://").removeprefix("http://").split("/")[0]
    registry = registry_of(image)
    if named and named not in (registry, f"index.{registry}"):
        raise InvalidInput(
            f"environment.registry_auth.serveraddress: {named!r} is not the registry of image {image!r}, which is "
            f"{registry!r}; name that one, or remove the key"
        )
    return {"serveraddress": named or registry, **{k: v for k, v in credentials.items() if k != "serveraddress" and v}}


def registry_of(image: str) -> str:
    """The registry that an image's name leads to."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"
