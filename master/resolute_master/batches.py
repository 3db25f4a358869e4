"""Work on many items, a few in each turn of the event loop.

In one turn, 200 answers or 1,600 orders of agents held up every other request for up to 2 s (`docs/benchmarks.md`, "Load").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

AT_ONCE = 16
"""The work that follows one answer takes about a millisecond."""


async def in_batches(items: Iterable[Item], do: Callable[[Item], None], *, at_once: int = AT_ONCE) -> None:
    """`do`, which must not raise, for every item in order; when this is cancelled, the rest at once."""
    left = deque(items)
    try:
        while left:
            for _ in range(min(at_once, len(left))):
                do(left.popleft())
            if left:
                await asyncio.sleep(0)
    finally:
        for item in left:
            do(item)


LOOKED_UP_AT_ONCE = 100
"""A lookup in the state takes about ten microseconds."""


async def map_in_batches(
    items: Iterable[Item], make: Callable[[Item], Made], *, at_once: int = LOOKED_UP_AT_ONCE
) -> list[Made]:
    """The results of `make`, in the order of the items. Each of its own moment: the state may change between two turns."""
    made: list[Made] = []
    for number, item in enumerate(items, 1):
        made.append(make(item))
        if number % at_once == 0:
            await asyncio.sleep(0)
    return made
