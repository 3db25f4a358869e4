"""Reads that the master's own work depends on: while the store is unavailable they wait for it, as writes do.

A caller of the API gets an error that the store does not answer, and retries; the engine has no caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from resolute.errors import Unavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""The store itself waits some seconds before it refuses a read."""


async def waited_for(read: Callable[[], Awaitable[T]]) -> T:
    """The result of a read, which is repeated while the store is unavailable."""
    while True:
        try:
            return await read()
        except Unavailable as error:
            log.warning("the store is waited for: %s", error)
            await asyncio.sleep(AGAIN_S)
