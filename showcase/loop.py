"""An event loop whose time jumps to the next timer until `pass_time`, and passes from then on."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _Jumping(selectors.DefaultSelector):
    """A selector that adds the loop's sleep to its virtual time. While threads work, virtual time does not advance."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped_s = 0.0
        self.passing_since: float | None = None
        self.threads = 0

    def now(self) -> float:
        return self.jumped_s if self.passing_since is None else self.jumped_s + time.monotonic() - self.passing_since

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.passing_since is not None:
            return super().select(timeout)
        if self.threads:
            return super().select(0 if timeout is not None and timeout <= 0 else None)
        if timeout is not None and timeout > 0:
            self.jumped_s += timeout
        return super().select(0 if timeout is not None else None)


class JumpingLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0. No socket may be used before `pass_time`."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now()

    @property
    def jumping(self) -> bool:
        return self._jumping.passing_since is None

    def pass_time(self) -> None:
        self._jumping.passing_since = time.monotonic()

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1
