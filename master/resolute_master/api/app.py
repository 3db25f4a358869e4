"""All routes in one application."""

from __future__ import annotations

from aiohttp import web

from resolute_master.api import (
    agents,
    allocations,
    checkpoint_download,
    checkpoints,
    experiments,
    extensions,
    jobs,
    ledger,
    login,
    logs,
    master,
    metrics,
    pools,
    preview,
    runs,
    tasks,
    trials,
    users,
    workspaces,
)
from resolute_master.api.call import Route
from resolute_master.api.context import CONTEXT, ApiContext
from resolute_master.api.cross_origin import allow_everyone, answer_preflight
from resolute_master.api.errors import errors

ROUTES: tuple[Route, ...] = (
    *login.ROUTES,
    *master.ROUTES,
    *experiments.ROUTES,
    *metrics.ROUTES,
    *trials.ROUTES,
    *runs.ROUTES,
    *logs.ROUTES,
    *checkpoints.ROUTES,
    *checkpoint_download.ROUTES,
    *tasks.ROUTES,
    *allocations.ROUTES,
    *agents.ROUTES,
    *pools.ROUTES,
    *jobs.ROUTES,
    *users.ROUTES,
    *workspaces.ROUTES,
    *preview.ROUTES,
    *ledger.ROUTES,
    *extensions.ROUTES,
)
"""The whole table; nothing of the API is served that is not in it."""


def build_api(context: ApiContext) -> web.Application:
    """The application, complete; more routes (the agents' link) may be added before it runs."""
    cors = context.config.enable_cors
    middlewares = [answer_preflight, errors] if cors else [errors]
    app = web.Application(middlewares=middlewares, client_max_size=context.max_request_bytes)
    app[CONTEXT] = context
    if cors:
        app.on_response_prepare.append(allow_everyone)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, route.serve)
        # A slash at the end means the same.
        app.router.add_route(route.method, f"{route.path}/", route.serve)
    return app
