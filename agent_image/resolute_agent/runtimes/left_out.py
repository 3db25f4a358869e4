"""Pure: what a runtime without container images leaves out of what was requested, and what it must refuse."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.config.default_images import DEFAULT_CPU_IMAGE, DEFAULT_CUDA_IMAGE, DEFAULT_ROCM_IMAGE
from resolute.wire.agent_link import BindMount, ContainerSpec

_UNASKED_IMAGES = ("", DEFAULT_CPU_IMAGE, DEFAULT_CUDA_IMAGE, DEFAULT_ROCM_IMAGE)
_ROOT = ("", "0:0")
_REMEDY = "run it where the agent's container_runtime is docker"


def warnings(spec: ContainerSpec, *, own_user: bool) -> list[str]:
    """Sentences for the task's output. `own_user`: the task does not run as the agent's user."""
    asked = spec.options
    said = []
    if spec.image not in _UNASKED_IMAGES:
        said.append(f"image {spec.image!r} is not used: tasks of this agent run with the machine's software")
    if asked.add_capabilities or asked.drop_capabilities:
        said.append("environment.add_capabilities and drop_capabilities have no effect: the task is a plain process")
    if asked.devices:
        said.append("resources.devices has no effect: the task sees the machine's devices")
    if asked.user not in _ROOT and not own_user:
        said.append(f"the agent user {asked.user} has no effect: the agent is not root, and the task runs as its user")
    return said


def why_not(mounts: Sequence[BindMount], *, private_root: bool) -> str:
    """Why the task cannot have its `bind_mounts` here; empty when it can."""
    for mount in mounts:
        if mount.read_only:
            return f"bind_mounts: {mount.container_path} cannot be read-only for a plain process; {_REMEDY}"
        if not mount.container_path.startswith("/"):
            return f"bind_mounts: {mount.container_path!r} must be an absolute path for a plain process, or {_REMEDY}"
        if ".." in mount.container_path.split("/"):
            return f"bind_mounts: {mount.container_path!r} must not contain .. for a plain process, or {_REMEDY}"
        if not private_root and mount.host_path != mount.container_path:
            return (
                f"bind_mounts: {mount.host_path} cannot appear as {mount.container_path}: this machine allows no "
                f"mount namespaces; {_REMEDY}"
            )
    return ""
