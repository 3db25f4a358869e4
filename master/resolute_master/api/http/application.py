"""The aiohttp application: the middleware, and the routes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from aiohttp import web

from resolute_master.api.http.call import Route
from resolute_master.api.http.cross_origin import allow_everyone, answer_preflight
from resolute_master.api.http.limits import MAX_UPLOAD_BYTES
from resolute_master.api.http.requests import Surroundings
from resolute_master.api.http.serving import SERVING, Serving


def build_application(
    serving: Serving,
    surroundings: Surroundings,
    routes: Sequence[Route],
    *,
    enable_cors: bool = False,
    max_request_bytes: int = MAX_UPLOAD_BYTES,
) -> web.Application:
    """More routes may be added before it runs."""
    middlewares = [surroundings.middleware(serving), *([answer_preflight] if enable_cors else [])]
    app = web.Application(middlewares=middlewares, client_max_size=max_request_bytes)
    app[SERVING] = serving
    app.on_response_prepare.append(surroundings.begin)
    if enable_cors:
        app.on_response_prepare.append(allow_everyone)
    add_routes(app, routes)
    return app


def add_routes(app: web.Application, routes: Sequence[Route]) -> None:
    # Those that follow each other with the same path are one resource of the router, which it compiles a pattern for.
    for path, group in groupby(routes, key=attrgetter("path")):
        of_path = list(group)
        for same in (path, f"{path}/"):  # a slash at the end means the same
            for route in of_path:
                app.router.add_route(route.method, same, route.serve)
