"""Whether the master works: for probes, which bring no token and must be answered at any time.

- `/ready`   200 when it can be given work, else 503; says of each part how it is
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
from resolute_master.api.http.opening import OPENING, Opening, Stage
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

PING_S = 2.0
"""A store that takes longer is not there: probes give up after a few seconds themselves."""


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


async def readiness(opening: Opening) -> Readiness:
    """Every part that a request needs, and all of them together."""
    parts = {"start": PartHealth(ok=opening.stage is Stage.SERVING, message=opening.doing)}
    context = opening.now
    if context is not None:
        stopped = context.engine.stopped
        parts["engine"] = PartHealth(ok=stopped is None, message="" if stopped is None else str(stopped))
        parts["store"] = await store_health(context.store)
    return Readiness(ready=all(part.ok for part in parts.values()), stage=opening.stage.value, parts=parts)


async def ready(opening: Opening) -> web.Response:
    found = await readiness(opening)
    return _answer(found, good=found.ready)


async def health(opening: Opening) -> web.Response:
    """As the contract has it. The resource manager is a part of this process: it works as long as its engine does."""
    parts = (await readiness(opening)).parts
    database = _status("store" in parts and parts["store"].ok)
    manager = _status("engine" in parts and parts["engine"].ok)
    good = database is HealthStatus.UP and manager is HealthStatus.UP
    body = HealthCheck(
        status=_status(good),
        database=database,
        resource_managers=(ResourceManagerHealth(cluster_name=opening.cluster_name, status=manager),),
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
    """A route that is answered from what there is: also before the master has started, and without a token."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        probe = cast(Callable[[Opening], Awaitable[web.Response]], self.handle)
        return await probe(request.app[OPENING])


def _probe(path: str, handle: Callable[[Opening], Awaitable[web.Response]]) -> Probe:
    return Probe("GET", path, Action.PUBLIC, nothing, cast(Handler, handle))


ROUTES = (_probe("/health", health), _probe("/ready", ready))
