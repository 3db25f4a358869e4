"""A loop that jumps over waiting, and both clouds behind one handle for the conformance suite."""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

from resolute.clock import Clock, LoopClock, SystemClock
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.fake import FakeBehaviour, FakeCloud
from resolute_provisioner.clouds.local.cloud import (
    LocalCloud,
    LocalCloudSettings,
    ScriptedInterruption,
    ScriptedRefusal,
    machine_environment,
    stop_all,
)
from resolute_provisioner.model import RefusalKind
from support.provisioner import NOW

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the loop's time there."""

    elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("nothing is scheduled and nothing can happen: a deadlock")
            self.elapsed_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.elapsed_s


def run_virtually(work: Callable[[Clock], Coroutine[Any, Any, Result]]) -> Result:
    """Run `work(clock)` to its end on a loop that never really waits."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        clock = LoopClock(NOW, runner.get_loop())
        return runner.run(work(clock))


class World(Protocol):
    """One cloud and a hand on it."""

    cloud: Cloud

    def reopened(self) -> Cloud:
        """The same cloud as another process would see it."""
        ...

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None: ...

    def machine_is_there(self, provider_id: str) -> bool:
        """Whether the machine really exists, whatever the port says."""
        ...


Scenario = Callable[[World], Awaitable[None]]


class FakeWorld:
    def __init__(self, clock: Clock, refusals: tuple[RefusalKind, ...]) -> None:
        self._fake = FakeCloud(clock=clock, rng=random.Random(7), behaviour=FakeBehaviour(boot_s=(1.0, 2.0)))
        self._fake.script(*refusals)
        self.cloud: Cloud = self._fake

    def reopened(self) -> Cloud:
        return self._fake

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        self._fake.interrupt(provider_id, notice_s=notice_s)

    def machine_is_there(self, provider_id: str) -> bool:
        return any(line.provider_id == provider_id for line in self._fake.bill.running())


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
        """End what a failed test left."""
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


async def until(condition: Callable[[], Awaitable[bool]], *, what: str, within_s: float = 60.0) -> None:
    """Wait for something that is bound to happen; the bound is generous and only ends a broken run."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    while not await condition():
        if loop.time() > give_up_at:
            raise AssertionError(f"did not happen within {within_s:g} s: {what}")
        await asyncio.sleep(0.05)


def wait_until(condition: Callable[[], bool], *, what: str, within_s: float = 60.0) -> None:
    """`until` for tests without a loop."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"did not happen within {within_s:g} s: {what}")
        time.sleep(0.05)


def every(after_s: float, *, instance: int = 1, notice_s: float | None = None) -> ScriptedInterruption:
    return ScriptedInterruption(instance=instance, after_s=after_s, notice_s=notice_s)


def run_now(work: Coroutine[Any, Any, Result]) -> Result:
    """Run one call of a port from a test without a loop."""
    return asyncio.run(work)
