"""Paths and devices of machines that experiments may use."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from resolute.config.base import ConfigModel, NonEmptyText, broken_at, broken_rule
from resolute.host_paths import DEVICES

DOCKER_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""What an engine gives to containers by itself."""

ALLOWED_CAPABILITIES = (*DOCKER_CAPABILITIES, "IPC_LOCK", "SYS_NICE", "SYS_PTRACE")
"""And what reaches nothing outside of the container: locked memory for RDMA, priorities, debuggers."""


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise broken_rule("must be an absolute path")
    return path


AbsolutePath = Annotated[NonEmptyText, AfterValidator(_absolute)]


class AgentHostPaths(ConfigModel):
    """Paths of this machine that experiments may use."""

    allowed: tuple[AbsolutePath, ...] | None = None
    """Directories for bind_mounts and storage, with all below them; null allows all but state, keys and system directories."""


class HostPaths(AgentHostPaths):
    """Paths and devices of machines that experiments may use."""

    devices: tuple[AbsolutePath, ...] = DEVICES
    """Patterns of files in /dev for resources.devices."""
    capabilities: tuple[NonEmptyText, ...] = ALLOWED_CAPABILITIES
    """Linux capabilities for environment.add_capabilities, without CAP_ before them."""

    @model_validator(mode="after")
    def _plain_names(self) -> Self:
        wrong = [index for index, name in enumerate(self.capabilities) if name != capability(name)]
        if wrong:
            text = "must be the name in upper case without CAP_"
            raise broken_at(*[(("capabilities", index), text, self.capabilities[index]) for index in wrong])
        return self


def capability(name: str) -> str:
    """The name as engines take it, in upper case and without CAP_."""
    return name.upper().removeprefix("CAP_")
