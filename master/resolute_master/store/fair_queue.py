"""A queue that serves its producers in turn, whatever amount each of them adds."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """First in, first out within a share; between shares one item each in turn. All operations take constant time."""

    def __init__(self) -> None:
        self._shares: dict[Hashable, deque[Item]] = {}

    def put(self, item: Item, share: Hashable) -> None:
        self._shares.setdefault(share, deque()).append(item)

    def first(self) -> Item:
        """What `take` gives next. Raises `LookupError` when there is nothing."""
        if not self._shares:
            raise LookupError("the queue is empty")
        return next(iter(self._shares.values()))[0]

    def take(self) -> Item:
        item = self.first()
        share = next(iter(self._shares))
        waiting = self._shares.pop(share)
        waiting.popleft()
        if waiting:
            self._shares[share] = waiting  # behind the others
        return item

    def holds(self, share: Hashable) -> bool:
        """Whether something of this share waits."""
        return share in self._shares

    def clear(self) -> None:
        self._shares.clear()

    def __bool__(self) -> bool:
        return bool(self._shares)

    def __iter__(self) -> Iterator[Item]:
        return (item for waiting in self._shares.values() for item in waiting)
