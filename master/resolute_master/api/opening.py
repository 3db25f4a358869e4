"""Before the master has started: the doors are there, and requests wait before them.

The socket is open from the first moment, so that probes get an answer at any time. Everything else waits until the state is loaded,
and is told to come again when that takes too long.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum

from aiohttp import web

from resolute.errors import Unavailable
from resolute_master.api.context import ApiContext

WAIT_S = 30.0
"""A request that comes during the start waits for so long: a start takes seconds, and callers try again."""


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
        self._changed = asyncio.Event()

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
        self._changed.set()

    def stop(self) -> None:
        """The master has been asked to stop: what is under way is finished, and probes are told."""
        self.stage, self.doing = Stage.STOPPING, "the master has been asked to stop"
        self._changed.set()

    @property
    def now(self) -> ApiContext | None:
        """The context, if there is one yet."""
        return self._context

    async def context(self) -> ApiContext:
        """Raises `Unavailable` when the master takes too long to start, or stops before it has."""
        if self._context is None:
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._changed.wait()
            except TimeoutError:
                raise Unavailable(f"the master is still starting ({self.doing}); try again in a moment") from None
        if self._context is None:
            raise Unavailable("the master stops before it has started; try again in a moment")
        return self._context


OPENING: web.AppKey[Opening] = web.AppKey("opening", Opening)
