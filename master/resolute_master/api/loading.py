"""The modules of the API, imported when the agents have their links: nothing can be scheduled without agents, and to import
routes and shapes takes a fifth of what a restart needs until it schedules again.

A module takes some milliseconds. One is imported at a time, when the event loop has nothing else to do, so that neither the
agents that come back nor a request waits for all of them.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Iterator

from resolute_master.api.call import Route

PACKAGES = ("resolute.wire.rest", "resolute_master.api.render", "resolute_master.api")
"""What is imported, in this order: later ones use those before, so that no step is much longer than the others."""

TABLE = "resolute_master.api.app"
"""Imports all of them: the last."""

QUIET_S = 0.0005
"""A turn of the event loop that is shorter had nothing to do."""

GIVES_WAY_S = 1.0
"""After so long the API is imported although others have to do: users and tasks wait for it."""


async def loaded_routes(*, gives_way_s: float = GIVES_WAY_S) -> tuple[Route, ...]:
    """The whole table of the API, imported a module at a time."""
    patient_until = asyncio.get_running_loop().time() + gives_way_s
    for name in _modules():
        await _quiet_turn(patient_until)
        importlib.import_module(name)
    from resolute_master.api.app import ROUTES

    return ROUTES


def _modules() -> Iterator[str]:
    for package in PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            if module.name != TABLE:
                yield module.name


async def _quiet_turn(until: float) -> None:
    """Let the others have turns of the event loop until one of them has nothing to do, at the latest until this moment."""
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        await asyncio.sleep(0)
        ended = loop.time()
        if ended - begun < QUIET_S or ended >= until:
            return
