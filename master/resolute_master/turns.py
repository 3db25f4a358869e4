"""Work for many at once, a few in each turn of the event loop, so that nobody else waits for all of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

AT_ONCE = 16
"""What somebody who was answered does next takes a millisecond or so."""


async def a_few_at_a_time(items: Iterable[Item], do: Callable[[Item], None], *, at_once: int = AT_ONCE) -> None:
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
