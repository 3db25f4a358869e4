"""Before the master has started: the doors are there, and requests wait before them.

The socket is open from the first moment, so that probes get an answer at any time. Everything else waits until the state is loaded,
most of it as bare sockets on the porch (`porch`), and here who has waited there for long, or comes on a connection that is in. Who
waits too long is told to come again. Then those who have waited come in a few in each turn of the event loop, and whoever comes
meanwhile stands behind them: the links of the agents, without which nothing can be scheduled, are not to wait for all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from enum import StrEnum

from aiohttp import web

from resolute.errors import Unavailable
from resolute_master.api.context import ApiContext

WAIT_S = 20.0
"""A request that comes during the start waits for so long, after the porch's ten seconds: a start takes seconds, and callers try
again."""

LET_IN_AT_ONCE = 1
"""Requests in one turn of the event loop, of those that have waited: each takes the better part of a millisecond."""


class Stage(StrEnum):
    """Where the master is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Opening:
    """The API's context, once there is one. `doing` says in words what the start is at."""

    def __init__(self, *, cluster_name: str = "", wait_s: float = WAIT_S) -> None:
        self.cluster_name = cluster_name
        self.stage = Stage.STARTING
        self.doing = "the process has begun"
        self._wait_s = wait_s
        self._context: ApiContext | None = None
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._letting_in: asyncio.Task[None] | None = None

    @classmethod
    def opened(cls, context: ApiContext) -> Opening:
        """Of a master that has started."""
        opening = cls(cluster_name=context.config.resource_manager.cluster_name)
        opening.open(context)
        return opening

    def open(self, context: ApiContext) -> None:
        """The master has started: everybody may come in."""
        self._context = context
        self.stage, self.doing = Stage.SERVING, ""
        if self._waiting:
            self._letting_in = asyncio.create_task(self._let_in(), name="requests that have waited")

    async def _let_in(self) -> None:
        while self._waiting:
            for _ in range(min(LET_IN_AT_ONCE, len(self._waiting))):
                self._pass_next()
            await asyncio.sleep(0)

    def _pass_next(self) -> None:
        place, _ = self._waiting.popitem(last=False)
        if not place.done():  # who waited may be going at this moment
            place.set_result(None)

    def stop(self) -> None:
        """The master has been asked to stop: what is under way is finished, and probes are told."""
        self.stage, self.doing = Stage.STOPPING, "the master has been asked to stop"
        while self._waiting:
            self._pass_next()

    @property
    def now(self) -> ApiContext | None:
        """The context, if there is one yet."""
        return self._context

    @property
    def free(self) -> ApiContext | None:
        """The context, if nobody waits to come in."""
        return None if self._waiting else self._context

    @property
    def serving(self) -> ApiContext:
        """The context, for a request that was let in."""
        assert self._context is not None
        return self._context

    async def context(self) -> ApiContext:
        """In one's turn. Raises `Unavailable` when the master takes too long to start, or stops before it has."""
        if self.free is None and self.stage is not Stage.STOPPING:
            place = asyncio.get_running_loop().create_future()
            self._waiting[place] = None
            try:
                async with asyncio.timeout(self._wait_s):
                    await place
            except TimeoutError:
                if self._context is None:
                    text = f"the master is still starting ({self.doing}); try again in a moment"
                else:
                    text = "too many have come at once after the master's start; try again in a moment"
                raise Unavailable(text) from None
            finally:
                self._waiting.pop(place, None)
        if self._context is None:
            raise Unavailable("the master stops before it has started; try again in a moment")
        return self._context


OPENING: web.AppKey[Opening] = web.AppKey("opening", Opening)
