"""An event loop with virtual time, and both clouds behind one interface for the conformance suite."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from resolute.clock import Clock, LoopClock
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.fake import FakeBehaviour, FakeCloud
from resolute_provisioner.clouds.fake_world import World
from resolute_provisioner.clouds.local.cloud import ScriptedInterruption
from resolute_provisioner.clouds.local.fake import STAND_IN_MACHINE, LocalWorld, processes_of
from resolute_provisioner.model import RefusalKind
from support.provisioner import NOW

__all__ = ["STAND_IN_MACHINE", "LocalWorld", "World", "processes_of"]

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the loop's time to the next timer instead of waiting."""

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
    """Runs `work(clock)` to its end under virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        clock = LoopClock(NOW, runner.get_loop())
        return runner.run(work(clock))


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


async def until(condition: Callable[[], Awaitable[bool]], *, what: str, within_s: float = 60.0) -> None:
    """Waits for an expected event. The generous time limit only ends a broken run."""
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
    """Runs one call of a port from a test without a loop."""
    return asyncio.run(work)
