"""Health of the master: for probes, which have no token and must be answered at any time.

- `/ready`   200 when it accepts work, else 503; with the state of each part
- `/health`  the contract's form: 503 when the database cannot be used
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import msgspec
from aiohttp import web

from resolute.errors import ResoluteError
from resolute.wire.codec import to_wire
from resolute.wire.rest.enums import HealthStatus
from resolute.wire.rest.health import HealthCheck, ResourceManagerHealth
from resolute.wire.rest.readiness import PartHealth, Readiness
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Handler, Route, nothing
from resolute_master.api.http.serving import SERVING, Serving, Stage
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

PING_S = 2.0
"""Time after which the store counts as unavailable, because probes stop waiting after a few seconds."""


async def store_health(store: Store, *, within_s: float = PING_S) -> PartHealth:
    try:
        async with asyncio.timeout(within_s):
            await store.ping()
    except TimeoutError:
        return PartHealth(ok=False, message=f"the store has not answered within {within_s:g} s")
    except Exception as error:
        # A driver's own text may hold an address or more; the log is for people who may read it.
        log.warning("the store does not answer: %s", error)
        return PartHealth(
            ok=False, message=str(error) if isinstance(error, ResoluteError) else "the store does not answer"
        )
    return PartHealth(ok=True)


async def readiness(serving: Serving) -> Readiness:
    """Readiness of each part that a request needs, and of all of them together."""
    working = serving.stage is Stage.SERVING
    stopped = serving.context.engine.stopped
    parts = {
        "master": PartHealth(ok=working, message="" if working else "the master is stopping"),
        "engine": PartHealth(ok=stopped is None, message="" if stopped is None else str(stopped)),
        "store": await store_health(serving.context.store),
    }
    return Readiness(ready=all(part.ok for part in parts.values()), stage=serving.stage.value, parts=parts)


async def ready(serving: Serving) -> web.Response:
    """Whether the master serves; status 503 while it does not."""
    found = await readiness(serving)
    return _answer(found, good=found.ready)


async def health(serving: Serving) -> web.Response:
    """Health of the master, as in the contract. The resource manager is part of this process: it works as long as the engine
    does."""
    parts = (await readiness(serving)).parts
    database = _status(parts["store"].ok)
    manager = _status(parts["engine"].ok)
    good = database is HealthStatus.UP and manager is HealthStatus.UP
    cluster = serving.context.config.resource_manager.cluster_name
    body = HealthCheck(
        status=_status(good),
        database=database,
        resource_managers=(ResourceManagerHealth(cluster_name=cluster, status=manager),),
    )
    return _answer(body, good=good)


def _status(good: bool) -> HealthStatus:
    return HealthStatus.UP if good else HealthStatus.DOWN


def _answer(body: object, *, good: bool) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(to_wire(body)), status=200 if good else 503, content_type="application/json"
    )


@dataclass(frozen=True, slots=True)
class Probe(Route):
    """A route that needs no token, and whose answer describes a failure instead of failing."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        probe = cast(Callable[[Serving], Awaitable[web.Response]], self.handle)
        return await probe(request.app[SERVING])


def _probe(path: str, handle: Callable[[Serving], Awaitable[web.Response]]) -> Probe:
    return Probe("GET", path, Action.PUBLIC, nothing, cast(Handler, handle))


ROUTES = (_probe("/health", health), _probe("/ready", ready))
