"""Calls for Prometheus: the metrics, and the addresses of the agents' machines.

- `/metrics`                   everything; `/prom/det-state-metrics` and `/debug/prom/metrics` are the contract's paths to the same
- `/prom/det-http-sd-config`   the machines of connected agents, for Prometheus's service discovery over HTTP

Open to every user, and to callers with `observability.metrics_token`, which grants nothing else.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput, NotFound
from resolute_master.api.auth.authenticate import authenticate
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Handler, Route, nothing
from resolute_master.api.http.serving import SERVING
from resolute_master.domain.agent import Agent

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"

EXPORTER_PORT = 9400
"""Port of NVIDIA's DCGM exporter for the GPUs of a machine; `?port=` selects another exporter."""

Read = Callable[[ApiContext, web.Request], Awaitable[web.Response]]


async def metrics(api: ApiContext, request: web.Request) -> web.Response:
    """Metrics of the master in the format of Prometheus."""
    if api.exposition is None:
        raise NotFound("metrics", "of this master")
    return web.Response(body=await api.exposition(), headers={"Content-Type": EXPOSITION_TYPE})


async def targets(api: ApiContext, request: web.Request) -> web.Response:
    """One target group per connected agent with a known address."""
    asked = request.query.get("port", str(EXPORTER_PORT))
    if not (asked.isascii() and asked.isdigit() and len(asked) <= 5 and 0 < int(asked) < 65536):
        raise InvalidInput(
            f"port: '{asked[:40]}' is no port; give the one that the exporter on the machines listens on"
        )
    groups = [
        {
            "targets": [f"[{agent.address}]:{asked}" if ":" in agent.address else f"{agent.address}:{asked}"],
            "labels": {"det_agent_id": agent.id, "det_resource_pool": agent.pool},
        }
        for agent in sorted(api.engine.state.all(Agent), key=lambda agent: agent.id)
        if agent.connected and agent.address
    ]
    return web.Response(body=msgspec.json.encode(groups), content_type="application/json")


@dataclass(frozen=True, slots=True)
class Scrape(Route):
    """A route of the monitoring."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        api = request.app[SERVING].context
        if not _has_token(request, api.config.observability.metrics_token):
            authenticate(request, api.tokens)
        if not api.config.observability.enable_prometheus:
            raise NotFound("metrics", "observability.enable_prometheus is false")
        read = cast(Read, self.handle)
        return await read(api, request)


def _has_token(request: web.Request, token: str) -> bool:
    given = request.headers.get("Authorization", "")
    return bool(token) and hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def _scrape(path: str, read: Read) -> Scrape:
    return Scrape("GET", path, Action.VIEW, nothing, cast(Handler, read))


ROUTES = (
    _scrape("/metrics", metrics),
    _scrape("/prom/det-state-metrics", metrics),
    _scrape("/debug/prom/metrics", metrics),
    _scrape("/prom/det-http-sd-config", targets),
)
