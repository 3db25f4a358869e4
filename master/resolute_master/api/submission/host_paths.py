"""Checks the paths and devices of machines in a configuration before anything is stored.

The master checks paths as they are written and as its own machine resolves them. Each agent checks again, at the start of a
task, what they lead to there.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resolute.config import MasterConfig
from resolute.config.host_paths import capability
from resolute.errors import InvalidInput
from resolute.host_paths import HostPathRules, why_not_device

_REMEDY = "an operator allows it with {} in the configuration of the master"
_DATABASE_FILES = ("", "-wal", "-shm", "-journal", ".lock", ".cluster")


def rules_of(config: MasterConfig, own_files: Iterable[str] = ()) -> HostPathRules:
    """The rules of a master. `own_files` are those that it was started with, such as its configuration."""
    security = config.security
    state = {config.cluster_state_dir: "the state of the master"}
    if config.sqlite_path is not None:
        state |= {f"{config.sqlite_path}{suffix}": "the database of the master" for suffix in _DATABASE_FILES}
    state |= dict.fromkeys(filter(None, (security.tls.cert, security.tls.key)), "the TLS key of the master")
    if security.seal.key_file:
        state[security.seal.key_file] = "the key that seals the secrets of the master"
    state |= dict.fromkeys(own_files, "the configuration of the master")
    return HostPathRules(
        state=state,
        allowed=security.host_paths.allowed,
        configured=tuple(configured_paths(config)),
        remedy=_REMEDY.format("security.host_paths.allowed"),
    )


def configured_paths(config: MasterConfig) -> Iterator[str]:
    """What the operator gives to every task: the storage, and the mounts of the cluster and of its pools."""
    if config.checkpoint_storage is not None:
        yield from (path for _, path in _storage_paths("", config.checkpoint_storage.model_dump(mode="json")))
    for defaults in (config.task_container_defaults, *(pool.task_container_defaults for pool in config.resource_pools)):
        if defaults is not None:
            yield from (mount.host_path for mount in defaults.bind_mounts)


async def check_host_paths(config: MasterConfig, rules: HostPathRules, wanted: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` for a complete experiment configuration that names what it may not."""
    # Resolving a path looks at file systems, which may be slow or gone.
    problem = await asyncio.to_thread(_problem, config, rules, wanted)
    if problem:
        raise InvalidInput(problem)


def _problem(config: MasterConfig, rules: HostPathRules, wanted: Mapping[str, Any]) -> str:
    for key, path in _paths(wanted):
        if why := rules.why_not(path):
            return f"{key}: {why}"
    allowed = config.security.host_paths
    operators = (config.task_container_defaults, *(pool.task_container_defaults for pool in config.resource_pools))
    devices = {device.host_path for each in operators if each is not None for device in each.devices}
    for index, device in enumerate((wanted.get("resources") or {}).get("devices") or ()):
        remedy = _REMEDY.format("security.host_paths.devices")
        if device["host_path"] not in devices and (why := why_not_device(device["host_path"], allowed.devices, remedy)):
            return f"resources.devices[{index}].host_path: {why}"
    capabilities = {capability(name) for each in operators if each is not None for name in each.add_capabilities}
    for index, name in enumerate((wanted.get("environment") or {}).get("add_capabilities") or ()):
        if capability(name) not in capabilities.union(allowed.capabilities):
            return f"environment.add_capabilities[{index}]: {name!r} reaches beyond the container; " + _REMEDY.format(
                "security.host_paths.capabilities"
            )
    return ""


def _paths(wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, mount in enumerate(wanted.get("bind_mounts") or ()):
        yield f"bind_mounts[{index}].host_path", str(mount["host_path"])
    for name in ("checkpoint_storage", "tensorboard_storage"):
        yield from _storage_paths(f"{name}.", wanted.get(name) or {})


def _storage_paths(prefix: str, storage: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every path of the machine that a storage leads to."""
    match storage.get("type"):
        case "shared_fs":
            host = str(storage["host_path"])
            yield f"{prefix}host_path", host
            if storage.get("storage_path"):
                yield f"{prefix}storage_path", posixpath.join(host, str(storage["storage_path"]))
        case "directory":
            yield f"{prefix}container_path", str(storage["container_path"])
