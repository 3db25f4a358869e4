"""Time as an input. Decisions take `now` from their snapshot; everything else is given a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The wall clock: an aware UTC datetime."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  # the one place that reads the wall clock

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """Wall time derived from an event loop's time, so that virtual loops carry virtual wall clocks."""

    def __init__(self, epoch: datetime, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoch = epoch
        self._start = loop.time()

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self._loop.time() - self._start)

    def monotonic(self) -> float:
        return self._loop.time()


class FixedClock:
    """A clock that advances only on request. For tests and replay."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def set(self, now: datetime) -> None:
        self._now = now
