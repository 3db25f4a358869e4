"""The local cloud with made-up machines, as a world of the conformance suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.local.cloud import (
    LocalCloud,
    LocalCloudSettings,
    ScriptedRefusal,
    machine_environment,
    stop_all,
)
from resolute_provisioner.model import Offer, RefusalKind

STAND_IN_MACHINE = ("/bin/sh", "-c", "sleep 1000 & wait", "stand-in-machine")
"""A machine process with a child of its own; called with its directory."""


class LocalWorld:
    def __init__(self, root: Path, refusals: tuple[RefusalKind, ...] = (), **changes: Any) -> None:
        self.root = root
        self._settings = LocalCloudSettings(
            root=root,
            environment=machine_environment(os.environ),
            refuse=tuple(ScriptedRefusal(launch=index, error=kind) for index, kind in enumerate(refusals, start=1)),
            **{"machine_command": STAND_IN_MACHINE, "boot_delay_s": 0.2, **changes},
        )
        self.local = LocalCloud(self._settings, clock=SystemClock())
        self.cloud: Cloud = self.local

    def reopened(self) -> Cloud:
        return LocalCloud(self._settings, clock=SystemClock())

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        await self.local.interrupt(provider_id, notice_s=notice_s)

    def machine_is_there(self, provider_id: str) -> bool:
        return bool(processes_of(self.root, provider_id))

    def close(self) -> None:
        """End the machines that a failed test left."""
        stop_all(self.root, clock=SystemClock(), wait_s=30.0)


def processes_of(root: Path, instance_id: str = "") -> list[int]:
    """Living processes whose command line names a machine directory below `root`, and their descendants."""
    directory = str(root / "instances" / instance_id)
    found: set[int] = set()
    for process in psutil.process_iter():
        try:
            named = any(part == directory or part.startswith(directory.rstrip("/") + "/") for part in process.cmdline())
            if instance_id:
                named = directory in process.cmdline()
            if named and process.status() != psutil.STATUS_ZOMBIE:
                found.update({process.pid, *(child.pid for child in process.children(recursive=True))})
        except psutil.NoSuchProcess:
            continue
    return sorted(found)


@contextmanager
def open_world(directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]) -> Iterator[LocalWorld]:
    """A world for the conformance suite."""
    world = LocalWorld(directory, refusals)
    try:
        yield world
    finally:
        world.close()
