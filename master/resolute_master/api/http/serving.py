"""The context of a running master's API, until the master stops."""

from __future__ import annotations

from enum import StrEnum

from aiohttp import web

from resolute_master.api.context import ApiContext


class Stage(StrEnum):
    """Stages of the master. The socket listens once the state has been loaded, so there is no earlier stage."""

    SERVING = "serving"
    STOPPING = "stopping"


class Serving:
    """The state of one application while it serves."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.stage = Stage.SERVING

    def stop(self) -> None:
        """Makes probes answer 503 from now on. Requests in progress are completed."""
        self.stage = Stage.STOPPING


SERVING: web.AppKey[Serving] = web.AppKey("serving", Serving)
