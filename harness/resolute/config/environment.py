"""What a task finds around it: image, variables, ports, mounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from resolute.config.base import (
    ConfigModel,
    Flag,
    FreeMap,
    Integer,
    NonEmptyText,
    Port,
    Secret,
    SecretMark,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.default_images import DEFAULT_CPU_IMAGE, DEFAULT_CUDA_IMAGE, DEFAULT_ROCM_IMAGE

DEVICE_TYPES = ("cpu", "cuda", "rocm")


def per_device_type(value: Any, whole: type) -> Any:
    """Spread a value of type `whole` over all device types, and read `gpu` as the old name of `cuda`."""
    if isinstance(value, whole):
        return dict.fromkeys(DEVICE_TYPES, value)
    if isinstance(value, Mapping) and "gpu" in value:
        value = dict(value)
        old = value.pop("gpu")
        if value.get("cuda") is None:
            value["cuda"] = old
    return value


class Images(ConfigModel):
    """The container image for each kind of device; one string applies to all three."""

    cpu: NonEmptyText = DEFAULT_CPU_IMAGE
    """On machines without accelerators."""
    cuda: NonEmptyText = DEFAULT_CUDA_IMAGE
    """On NVIDIA GPUs (old name: gpu)."""
    rocm: NonEmptyText = DEFAULT_ROCM_IMAGE
    """On AMD GPUs."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        return per_device_type(value, str)


_ASSIGNMENT_RULE = "must be NAME=VALUE; an empty value is written NAME="


def _is_assignment(value: object) -> bool:
    return isinstance(value, str) and value.find("=") > 0


def _assignment(text: str) -> str:
    if not _is_assignment(text):
        raise broken_rule(_ASSIGNMENT_RULE)
    return text


Assignment = Annotated[Text, AfterValidator(_assignment)]


class EnvironmentVariables(ConfigModel):
    """Variables for each kind of device; one list applies to all three. Later entries win."""

    cpu: tuple[Assignment, ...] = ()
    """On machines without accelerators."""
    cuda: tuple[Assignment, ...] = ()
    """On NVIDIA GPUs (old name: gpu)."""
    rocm: tuple[Assignment, ...] = ()
    """On AMD GPUs."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        if isinstance(value, list):  # said once, not for each kind of device
            wrong = [(index, one) for index, one in enumerate(value) if not _is_assignment(one)]
            if wrong:
                raise broken_at(*[((index,), _ASSIGNMENT_RULE, one) for index, one in wrong])
        return per_device_type(value, list)


class ProxyPort(ConfigModel):
    """A port of the first container that the master forwards to."""

    proxy_port: Port
    """Port in the container."""
    proxy_tcp: Flag = False
    """Forward raw TCP instead of HTTP."""
    unauthenticated: Flag = False
    """Allow unauthenticated access."""
    default_service_id: Flag = False
    """Serve it under the bare task id."""


class RegistryAuth(ConfigModel):
    """Credentials of the image registry."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset(
        {"username", "password", "auth", "email", "serveraddress", "identitytoken", "registrytoken"}
    )

    username: Text | None = None
    """User of the registry."""
    password: Secret | None = None
    """Password of that user."""
    auth: Secret | None = None
    """User and password in one encoded text."""
    email: Text | None = None
    """Has no effect; some registries ask for it."""
    serveraddress: Text | None = None
    """The registry these credentials are for."""
    identitytoken: Secret | None = None
    """Token instead of a password."""
    registrytoken: Secret | None = None
    """Token that is sent as it is."""


_OWN_CONTAINER = "determined-container"
_OWNED_KEYS = (
    "image",
    "command",
    "args",
    "working_dir",
    "ports",
    "liveness_probe",
    "readiness_probe",
    "startup_probe",
    "lifecycle",
    "termination_message_path",
    "termination_message_policy",
    "image_pull_policy",
    "security_context",
)


def _pod_spec(value: FreeMap) -> FreeMap:
    """Refuse what the platform itself would have to decide in a pod."""
    found: list[tuple[tuple[str | int, ...], str, object]] = [
        ((key,), "may not be set in a pod_spec; remove it", value[key])
        for key in ("name", "name_space")
        if key in value
    ]
    spec = value.get("spec", value)
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    prefix: tuple[str | int, ...] = ("spec",) if "spec" in value else ()
    for index, container in enumerate(containers if isinstance(containers, list) else []):
        if isinstance(container, Mapping) and container.get("name", _OWN_CONTAINER) == _OWN_CONTAINER:
            for key in _OWNED_KEYS:
                if container.get(key) is not None:
                    text = f"may not be set for the container '{_OWN_CONTAINER}'; remove it"
                    found.append(((*prefix, "containers", index, key), text, container[key]))
    if found:
        raise broken_at(*found)
    return value


PodSpec = Annotated[FreeMap, AfterValidator(_pod_spec), SecretMark.FREE]


def _python(text: str) -> str:
    if "/" not in text or set(text) & set(":\n\0"):
        raise broken_rule(
            "must be the path of a virtual environment or of a Python interpreter, with a slash and without a colon; "
            "write ./NAME for one in the model code"
        )
    return text


class Environment(ConfigModel):
    """The surroundings of every task of the experiment."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"python"})

    image: Images = Images()
    """The container image."""
    environment_variables: Annotated[EnvironmentVariables, SecretMark.VARIABLES] = EnvironmentVariables()
    """Variables as NAME=VALUE."""
    python: Annotated[Text, AfterValidator(_python)] | None = None
    """Virtual environment or interpreter that runs the entrypoint; a relative path starts at the model code."""
    proxy_ports: tuple[ProxyPort, ...] = ()
    """Ports that the master forwards to."""
    ports: dict[str, Integer] = Field(default_factory=dict)
    """Named ports of the container."""
    force_pull_image: Flag = False
    """Pull the image even if it is present."""
    registry_auth: RegistryAuth | None = None
    """Credentials of the image registry."""
    add_capabilities: tuple[Text, ...] = ()
    """Linux capabilities to add."""
    drop_capabilities: tuple[Text, ...] = ()
    """Linux capabilities to take away."""
    pod_spec: PodSpec | None = None
    """For Kubernetes only."""


Propagation = Literal["rprivate", "private", "rshared", "shared", "rslave", "slave"]


class BindMount(ConfigModel):
    """A directory of the machine that is visible in the container."""

    host_path: NonEmptyText
    """Path on the machine, absolute."""
    container_path: NonEmptyText
    """Path in the container; a relative one starts at the working directory."""
    read_only: Flag = False
    """The container may not write there."""
    propagation: Propagation = "rprivate"
    """How later mounts below it spread."""

    @model_validator(mode="after")
    def _paths(self) -> Self:
        found: list[tuple[tuple[str | int, ...], str, object]] = []
        if not self.host_path.startswith("/"):
            found.append((("host_path",), "host_path must be an absolute path", self.host_path))
        if self.container_path == ".":
            found.append((("container_path",), 'container_path must not be "."', self.container_path))
        if found:
            raise broken_at(*found)
        return self
