"""A store whose rows are counted as they come out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sized
from typing import Any

from resolute_master.store.base import Store


class CountingStore:
    """Obeys whatever of `Store` is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **options: Any) -> Any:
            found = await getattr(self._store, name)(*args, **options)
            self.rows += len(found) if isinstance(found, Sized) else 1
            return found

        return counted
