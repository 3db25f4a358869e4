"""The context of a running master's API, until the master stops."""

from __future__ import annotations

from enum import StrEnum

from aiohttp import web

from resolute_master.api.context import ApiContext


class Stage(StrEnum):
    """Where the master is in its life. The socket listens when the state has been loaded, so there is no stage before."""

    SERVING = "serving"
    STOPPING = "stopping"


class Serving:
    """The state of one application while it serves."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.stage = Stage.SERVING

    def stop(self) -> None:
        """Probes answer 503 from now on; requests under way are finished."""
        self.stage = Stage.STOPPING


SERVING: web.AppKey[Serving] = web.AppKey("serving", Serving)
