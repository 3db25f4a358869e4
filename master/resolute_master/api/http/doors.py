"""The application that stands at the socket from the first moment: what surrounds each request, and the probes.

The other routes of the API come when the master has started (`loading`); who asks for one of them before waits for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from aiohttp import web

from resolute.clock import Clock
from resolute.errors import Unavailable
from resolute_master.api.http.call import Route
from resolute_master.api.http.cross_origin import allow_everyone, answer_preflight
from resolute_master.api.http.limits import MAX_UPLOAD_BYTES
from resolute_master.api.http.opening import OPENING, Opening
from resolute_master.api.http.patience import Patience
from resolute_master.api.http.requests import Surroundings, Waited
from resolute_master.api.resources import health


class RoutesToCome(web.PlainResource):
    """Asked for every path that nothing else of the application has. aiohttp takes no further route once its application runs,
    so those of the API stand in a table of their own, which is looked at when the opening has let the request in. It is also what
    says that there is no such path or method."""

    def __init__(self, opening: Opening, clock: Clock, doors: web.UrlDispatcher) -> None:
        """`doors` are the routes that are served from the first moment."""
        super().__init__("/")
        self._opening = opening
        self._clock = clock
        self._doors = doors
        self.table = web.UrlDispatcher()

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        if self._opening.free is None:
            return await self._in_turn(request), set()
        found = await self.table.resolve(request)
        if isinstance(found.http_exception, web.HTTPNotFound) and await self._is_at_the_doors(request):
            return None, set()
        return found, set()

    async def _in_turn(self, request: web.Request) -> Waited | None:
        """What the table has, when it is complete; None, at once, for what it will not have: nobody serves OPTIONS (a preflight
        needs no route), nor further methods of what is at the doors."""
        if request.method == "OPTIONS" or await self._is_at_the_doors(request):
            return None
        came = self._clock.monotonic()
        try:
            await self._opening.context()
        except Unavailable as error:
            return Waited({}, self._refusal(error), came)
        found = await self.table.resolve(request)
        return Waited(found, found.route, came)

    async def _is_at_the_doors(self, request: web.Request) -> bool:
        """Whether the doors have the path with other methods; which, they tell themselves."""
        for resource in self._doors.resources():
            if resource is not self and (await resource.resolve(request))[1]:
                return True
        return False

    def _refusal(self, error: Unavailable) -> web.ResourceRoute:
        """A route that answers as any other that fails."""

        async def refuse(request: web.Request) -> NoReturn:
            raise error

        return web.ResourceRoute("*", refuse, self)

    def __len__(self) -> int:
        return len(self.table.routes())

    def __iter__(self) -> Iterator[web.ResourceRoute]:
        for resource in self.table.resources():
            assert isinstance(resource, web.Resource), "only routes by path are added"
            yield from resource


ROUTES_TO_COME: web.AppKey[RoutesToCome] = web.AppKey("routes to come", RoutesToCome)


def build_doors(
    opening: Opening,
    surroundings: Surroundings,
    *,
    enable_cors: bool = False,
    max_request_bytes: int = MAX_UPLOAD_BYTES,
) -> web.Application:
    """The application of a master that starts: `add_routes` before `Opening.open`."""
    patience = Patience(opening, surroundings.clock)
    middlewares = [surroundings.middleware(patience), *([answer_preflight] if enable_cors else [])]
    app = web.Application(middlewares=middlewares, client_max_size=max_request_bytes)
    app[OPENING] = opening
    app[ROUTES_TO_COME] = RoutesToCome(opening, surroundings.clock, app.router)
    app.on_response_prepare.append(surroundings.begins(patience))
    app.cleanup_ctx.append(patience.running)
    if enable_cors:
        app.on_response_prepare.append(allow_everyone)
    for route in health.ROUTES:
        _add(app.router, route)
    app.router.register_resource(app[ROUTES_TO_COME])
    return app


def add_routes(app: web.Application, routes: Sequence[Route]) -> None:
    """The whole table. The probes are in it once more: of their paths it tells which methods there are."""
    for route in routes:
        _add(app[ROUTES_TO_COME].table, route)


def _add(router: web.UrlDispatcher, route: Route) -> None:
    router.add_route(route.method, route.path, route.serve)
    # A slash at the end means the same.
    router.add_route(route.method, f"{route.path}/", route.serve)
