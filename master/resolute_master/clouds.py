"""The clouds behind the elastic pools, made from the pools' configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from resolute.clock import Clock
from resolute.config.pools import ResourcePool
from resolute.config.providers import LocalProvider
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.local import (
    POWER_OFF_COMMAND,
    LocalCloud,
    LocalCloudSettings,
    ScriptedInterruption,
    ScriptedRefusal,
    machine_environment,
)
from resolute_provisioner.model import RefusalKind

OpenCloud = Callable[[ResourcePool, Path, Mapping[str, str], Clock], Cloud | None]
"""`cloud_of`, or what is composed in its place."""


def agent_options(provider: LocalProvider) -> Mapping[str, object]:
    """Settings of the agents of a pool's machines, beyond what every agent is told."""
    if provider.container_runtime == "process":
        return {}
    return {"runtime": provider.container_runtime, "docker_host": provider.docker_host}


def cloud_of(pool: ResourcePool, directory: Path, environ: Mapping[str, str], clock: Clock) -> Cloud | None:
    """The cloud that the pool's machines come from; `directory` is the pool's own, for the local one."""
    provider = pool.provider
    if not isinstance(provider, LocalProvider):
        return None
    settings = LocalCloudSettings(
        root=directory,
        environment=machine_environment(environ),
        boot_delay_s=provider.boot_delay,
        power_off_command=POWER_OFF_COMMAND if provider.container_runtime == "docker" else (),
        refuse=tuple(ScriptedRefusal(launch=r.launch, error=RefusalKind(r.error)) for r in provider.refuse),
        interruptions=tuple(
            ScriptedInterruption(instance=i.instance, after_s=i.after, after_steps=i.after_steps, notice_s=i.notice)
            for i in provider.interruptions
        ),
    )
    return LocalCloud(settings, clock=clock)
