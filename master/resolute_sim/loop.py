"""An event loop whose time jumps to the next timer: hours pass in milliseconds, in the same order every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")


class Deadlock(Exception):
    """Everything waits and no timer is set: nothing can ever happen again."""


class _NoFiles(selectors.BaseSelector):
    """Never waits: what the loop would have slept is added to its time. Holds the loop's own wake-up pipe and no more."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:
            raise RuntimeError("files and sockets do not follow virtual time: give this part an in-memory port")
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, number, events, data)
        self._keys[number] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("everything waits and no timer is set")
        if timeout > 0:
            self.now += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0. Threads and processes must not be used: time does not wait for them."""

    def __init__(self) -> None:
        self._files = _NoFiles()
        super().__init__(self._files)

    def time(self) -> float:
        return self._files.now


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end under virtual time. Raises `Deadlock` when nothing can ever wake up."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
