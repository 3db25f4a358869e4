"""All routes in one application."""

from __future__ import annotations

from aiohttp import web

from resolute_master.api import (
    agents,
    allocations,
    budgets,
    checkpoint_download,
    checkpoint_policy,
    checkpoints,
    cost,
    experiments,
    extensions,
    health,
    jobs,
    ledger,
    lineage,
    login,
    logs,
    master,
    metric_batches,
    metrics,
    monitoring,
    offers,
    pool_bindings,
    pools,
    preview,
    retention,
    runs,
    tasks,
    templates,
    trials,
    unmanaged,
    users,
    why,
    workspaces,
)
from resolute_master.api.call import Route
from resolute_master.api.context import ApiContext
from resolute_master.api.cross_origin import allow_everyone, answer_preflight
from resolute_master.api.limits import MAX_UPLOAD_BYTES
from resolute_master.api.opening import OPENING, Opening
from resolute_master.api.patience import Patience
from resolute_master.api.requests import Surroundings, Unobserved

ROUTES: tuple[Route, ...] = (
    *login.ROUTES,
    *master.ROUTES,
    *experiments.ROUTES,
    *metrics.ROUTES,
    *metric_batches.ROUTES,
    *trials.ROUTES,
    *unmanaged.ROUTES,
    *runs.ROUTES,
    *logs.ROUTES,
    *retention.ROUTES,
    *checkpoints.ROUTES,
    *checkpoint_download.ROUTES,
    *checkpoint_policy.ROUTES,
    *lineage.ROUTES,
    *tasks.ROUTES,
    *allocations.ROUTES,
    *agents.ROUTES,
    *pools.ROUTES,
    *pool_bindings.ROUTES,
    *jobs.ROUTES,
    *users.ROUTES,
    *workspaces.ROUTES,
    *templates.ROUTES,
    *preview.ROUTES,
    *ledger.ROUTES,
    *cost.ROUTES,
    *budgets.ROUTES,
    *extensions.ROUTES,
    *offers.ROUTES,
    *why.ROUTES,
    *health.ROUTES,
    *monitoring.ROUTES,
)
"""The whole table; nothing of the API is served that is not in it."""


def build_api(context: ApiContext) -> web.Application:
    """The application of a master that has started, complete; more routes may be added before it runs."""
    return build_doors(
        Opening.opened(context),
        Surroundings(clock=context.clock, ids=context.ids, observer=Unobserved()),
        enable_cors=context.config.enable_cors,
        max_request_bytes=context.max_request_bytes,
    )


def build_doors(
    opening: Opening,
    surroundings: Surroundings,
    *,
    enable_cors: bool = False,
    max_request_bytes: int = MAX_UPLOAD_BYTES,
) -> web.Application:
    """The application of a master that starts: what it serves comes later, with `Opening.open`."""
    patience = Patience(opening, surroundings.clock)
    middlewares = [surroundings.middleware(patience), *([answer_preflight] if enable_cors else [])]
    app = web.Application(middlewares=middlewares, client_max_size=max_request_bytes)
    app[OPENING] = opening
    app.on_response_prepare.append(surroundings.begins(patience))
    app.cleanup_ctx.append(patience.running)
    if enable_cors:
        app.on_response_prepare.append(allow_everyone)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, route.serve)
        # A slash at the end means the same.
        app.router.add_route(route.method, f"{route.path}/", route.serve)
    return app
