"""A store that counts the returned rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sized
from typing import Any

from resolute_master.store.base import Store


class CountingStore:
    """Implements `Store` by delegation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **options: Any) -> Any:
            found = await getattr(self._store, name)(*args, **options)
            self.rows += len(found) if isinstance(found, Sized) else 1
            return found

        return counted
