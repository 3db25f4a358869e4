"""The modules of the API, imported when the agents have their links: nothing can be scheduled without agents, and to import
routes and shapes takes a fifth of what a restart needs until it schedules again.

It begins when the event loop has little to do, for those who have come back are at work with the engine first. A module takes some
milliseconds; one is imported in a turn, so that neither agents nor a request waits for all of them.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import time
from collections.abc import Iterator, Sequence

from resolute_master.api.http.call import Route

BEFORE_THEIR_USERS = (
    "resolute.wire.rest.paging",
    "resolute.wire.rest.extensions",
    "resolute.wire.rest.metrics",
    "resolute.wire.rest.experiments",
    "resolute.wire.rest.auth",
    "resolute.wire.rest.workspaces",
    "resolute.wire.rest.trials",
    "resolute.wire.rest.searching",
    "resolute_master.scheduler.blockers",
    "resolute_master.scheduler.snapshot_format",
    "resolute_master.scheduler.what_if",
    "resolute_master.scheduler.explain",
    "resolute_master.lifecycle.overtaking",
)
"""Imported first, in this order: who uses them comes earlier in the alphabet, or takes long itself, and its step would be theirs
as well."""

PACKAGES = (
    "resolute.wire.rest",
    "resolute_master.api.render",
    "resolute_master.api.auth",
    "resolute_master.api.http",
    "resolute_master.api.reading",
    "resolute_master.api.queue",
    "resolute_master.api.submission",
    "resolute_master.api.resources",
)
"""What is imported then, in this order: later ones use those before, so that no step is much longer than the others."""

TABLE = "resolute_master.api.app"
"""Imports all of them. `rights` and `openapi` beside it write documentation: a master does not import them."""

LOOK_S = 0.05
QUIET_S = 0.005
"""The event loop has little to do when it computes less than this in a look: to take in an agent is some milliseconds, and between
two of them it waits for commits."""

GIVES_WAY_S = 0.5
"""After so long the API is imported although others have to do: users and tasks wait for it."""


async def loaded_routes(*, gives_way_s: float = GIVES_WAY_S) -> tuple[Route, ...]:
    """The whole table of the API, imported a module at a time."""
    await _quiet(gives_way_s)
    for name in _modules():
        importlib.import_module(name)
        await asyncio.sleep(0)
    from resolute_master.api.app import ALL_ROUTES

    return ALL_ROUTES


async def load(packages: Sequence[str]) -> None:
    """Import all modules of these packages, one in a turn."""
    for package in packages:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
            await asyncio.sleep(0)


def _modules() -> Iterator[str]:
    yield from BEFORE_THEIR_USERS
    for package in PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            yield module.name
    yield TABLE


async def _quiet(within_s: float) -> None:
    """Until the event loop has little to do; at the latest after so long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while loop.time() < until:
        computed = time.thread_time()
        await asyncio.sleep(LOOK_S)
        if time.thread_time() - computed < QUIET_S:
            return
