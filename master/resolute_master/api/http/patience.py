"""Requests that wait for a database which is away: people are told after a while, tasks wait until it is back.

A task's report must not fail because the database is started anew; its own client gives up first, and sends it again. Whoever
else changes something hears after `PATIENCE_S` that it may or may not have been stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from resolute.clock import Clock
from resolute.errors import PermissionDenied, Unauthenticated, Unavailable
from resolute_master.api.auth.authenticate import authenticate
from resolute_master.api.http.opening import Opening

PATIENCE_S = 15.0
"""Longer than a database server takes to be started anew, shorter than people and proxies wait."""

LOOK_S = 1.0

Held = asyncio.Task[object]
"""The task that serves one request."""


class Patience:
    """Knows which requests are open and have not begun to answer."""

    def __init__(
        self, opening: Opening, clock: Clock, *, patience_s: float = PATIENCE_S, look_s: float = LOOK_S
    ) -> None:
        self._opening = opening
        self._clock = clock
        self._patience_s = patience_s
        self._look_s = look_s
        self._waiting: dict[Held, tuple[web.Request, float]] = {}
        self._cut: set[Held] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept, for each look for the running one asks the system which process this is."""

    def hold(self, request: web.Request, begun: float) -> Held:
        """The request of this task is open, since `begun` on the clock, until `let_go`."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._waiting[task] = (request, begun)
        return task

    def let_go(self, task: Held) -> None:
        """It is answered, or has begun to be: who has begun to answer cannot say anything else any more. Again is harmless."""
        self._waiting.pop(task, None)
        self._cut.discard(task)

    def refusal(self, task: Held) -> Unavailable | None:
        """What a request that was cancelled is told; None when it was not cancelled from here."""
        if task not in self._cut:
            return None
        task.uncancel()
        return Unavailable(
            f"the database has not answered for {self._patience_s:g} s; what was asked may or may not be stored: "
            "look, and ask again in a moment"
        )

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """For `cleanup_ctx`."""
        self._loop = asyncio.get_running_loop()
        looking = asyncio.create_task(self._look_around(), name="patience")
        yield
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            context = self._opening.now
            if context is None or context.store.away_s() < self._patience_s:
                continue
            oldest = self._clock.monotonic() - self._patience_s
            for task, (request, began) in tuple(self._waiting.items()):
                if began <= oldest and not self._is_of_a_task(request):
                    self._cut.add(task)
                    task.cancel()

    def _is_of_a_task(self, request: web.Request) -> bool:
        context = self._opening.now
        assert context is not None
        try:
            return authenticate(request, context.tokens).allocation is not None
        except (Unauthenticated, PermissionDenied):
            return False
