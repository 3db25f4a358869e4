"""All routes in one table."""

from __future__ import annotations

from aiohttp import web

from resolute_master.api.context import ApiContext
from resolute_master.api.http.application import build_application
from resolute_master.api.http.call import Route
from resolute_master.api.http.requests import Surroundings, Unobserved
from resolute_master.api.http.response_headers import ResponseHeaders
from resolute_master.api.http.serving import Serving
from resolute_master.api.resources import (
    agent_joining,
    agents,
    allocations,
    budgets,
    bulk,
    checkpoint_download,
    checkpoint_policy,
    checkpoints,
    compare_trials,
    cost,
    experiment_search,
    experiments,
    extensions,
    health,
    jobs,
    ledger,
    lineage,
    log_fields,
    login,
    logs,
    master,
    metric_batches,
    metric_streams,
    metrics,
    model_files,
    monitoring,
    not_yet,
    offers,
    pool_advice,
    pool_bindings,
    pools,
    preview,
    projects,
    retention,
    runs,
    searching,
    tasks,
    templates,
    timeline,
    trials,
    unmanaged,
    user_settings,
    users,
    validation_history,
    why,
    workspaces,
)

ROUTES: tuple[Route, ...] = (
    *login.ROUTES,
    *master.ROUTES,
    *experiments.ROUTES,
    *bulk.ROUTES,
    *metrics.ROUTES,
    *metric_batches.ROUTES,
    *compare_trials.ROUTES,
    *metric_streams.ROUTES,
    *validation_history.ROUTES,
    *timeline.ROUTES,
    *trials.ROUTES,
    *unmanaged.ROUTES,
    *runs.ROUTES,
    *logs.ROUTES,
    *log_fields.ROUTES,
    *model_files.ROUTES,
    *retention.ROUTES,
    *checkpoints.ROUTES,
    *checkpoint_download.ROUTES,
    *checkpoint_policy.ROUTES,
    *lineage.ROUTES,
    *tasks.ROUTES,
    *allocations.ROUTES,
    *agents.ROUTES,
    *agent_joining.ROUTES,
    *pools.ROUTES,
    *pool_bindings.ROUTES,
    *jobs.ROUTES,
    *users.ROUTES,
    *user_settings.ROUTES,
    *workspaces.ROUTES,
    *projects.ROUTES,
    *templates.ROUTES,
    *preview.ROUTES,
    *experiment_search.ROUTES,
    *searching.ROUTES,
    *ledger.ROUTES,
    *cost.ROUTES,
    *budgets.ROUTES,
    *extensions.ROUTES,
    *offers.ROUTES,
    *pool_advice.ROUTES,
    *why.ROUTES,
    *health.ROUTES,
    *monitoring.ROUTES,
)
"""All routes of the API. No other route is served."""

ALL_ROUTES: tuple[Route, ...] = (*ROUTES, *not_yet.ROUTES)
"""All routes, and the calls of the contract that are not served yet."""


def build_api(context: ApiContext) -> web.Application:
    """The application of a master, complete; more routes may be added before it runs."""
    headers = ResponseHeaders(context.addresses, hsts_max_age_s=context.config.security.tls.hsts_max_age)
    surroundings = Surroundings(clock=context.clock, ids=context.ids, observer=Unobserved(), headers=headers)
    return build_application(
        Serving(context),
        surroundings,
        ALL_ROUTES,
        enable_cors=context.config.enable_cors,
        max_request_bytes=context.max_request_bytes,
    )
