"""The cloud of processes on this computer, as a pool configures it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from resolute.clock import Clock
from resolute.config.providers import LocalProvider
from resolute_provisioner.clouds.local import (
    POWER_OFF_COMMAND,
    LocalCloud,
    LocalCloudSettings,
    ScriptedInterruption,
    ScriptedRefusal,
    machine_environment,
)
from resolute_provisioner.model import RefusalKind


def local_cloud(provider: LocalProvider, directory: Path, environ: Mapping[str, str], clock: Clock) -> LocalCloud:
    """The cloud of one pool, whose machines live in `directory`."""
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
