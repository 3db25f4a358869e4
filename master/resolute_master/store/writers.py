"""Many small appends become few transactions, without a timer.

While one batch is being written, what arrives waits; as soon as the write ends, all that waits is the next batch. So a
lone append is written at once, and under load batches grow by themselves.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from resolute.errors import FailedPrecondition

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

Write = Callable[[Sequence[Item]], Awaitable[Sequence[Outcome] | None]]
"""Stores a batch, all or nothing, and says what became of each item; None when there is nothing to say."""

MAX_BATCH_ITEMS = 500
"""More items in one transaction gain little and make everyone in it wait."""

MAX_BATCH_BYTES = 64 * 1024
"""The same limit for large items, by `size_of`."""

MAX_UNSTORED_ITEMS = 5_000
"""Items taken and not yet durable. Past that `append` waits: a slow disk slows its writers instead of filling memory."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Item, Outcome]):
    items: tuple[Item, ...]
    size: int
    done: asyncio.Future[tuple[Outcome, ...]]


class BatchedWriter(Generic[Item, Outcome]):
    """The only writer of one stream.

    The items of one `append` are never divided between transactions, so a call either stored all of them or raised
    and stored none; a call that is larger than a batch is a batch of its own.
    """

    def __init__(self, write: Write[Item, Outcome], *, size_of: Callable[[Item], int] | None = None) -> None:
        """`write` is a store's method; `size_of` is about how many bytes an item takes (not counted when None)."""
        self._write = write
        self._size_of = size_of
        self._waiting: deque[_Call[Item, Outcome]] = deque()
        self._unstored = 0
        self._admission = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def unstored(self) -> int:
        """Items that were taken and are not durable yet."""
        return self._unstored

    async def append(self, items: Sequence[Item]) -> tuple[Outcome, ...]:
        """Returns when all items are durable, with one outcome each (none when the stream has none).

        Raises what the write of their batch raised; later batches are not affected. A caller that is cancelled while it
        waits does not know whether its items were stored.
        """
        if not items:
            return ()
        async with self._admission:  # first come, first served, also when there is no room
            self._refuse_when_closed()
            await self._room.wait()
            self._refuse_when_closed()
            call = self._enqueue(tuple(items))
        return await call.done

    async def close(self) -> None:
        """Takes nothing more and returns when all that was taken is written, or has failed. Again is a no-op."""
        self._closed = True
        self._room.set()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise FailedPrecondition("the stream is closed: the master is stopping; send this again when it is back")

    def _enqueue(self, items: tuple[Item, ...]) -> _Call[Item, Outcome]:
        size = 0 if self._size_of is None else sum(map(self._size_of, items))
        call: _Call[Item, Outcome] = _Call(items, size, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._unstored += len(items)
        if self._unstored >= MAX_UNSTORED_ITEMS:
            self._room.clear()
        if self._flushing is None:
            # In a context of its own: its log lines are about no single caller.
            self._flushing = asyncio.create_task(self._flush(), name="batched-writer", context=contextvars.Context())
        return call

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                try:
                    await self._write_batch(batch)
                finally:
                    self._unstored -= sum(len(call.items) for call in batch)
                    if self._unstored < MAX_UNSTORED_ITEMS or self._closed:
                        self._room.set()
        finally:
            # Only a cancelled flush leaves calls behind; they must not wait for ever.
            for call in self._waiting:
                call.done.cancel()
            self._unstored -= sum(len(call.items) for call in self._waiting)
            self._waiting.clear()
            self._room.set()
            self._flushing = None

    def _next_batch(self) -> list[_Call[Item, Outcome]]:
        batch = [self._waiting.popleft()]
        count, size = len(batch[0].items), batch[0].size
        while self._waiting:
            call = self._waiting[0]
            count, size = count + len(call.items), size + call.size
            if count > MAX_BATCH_ITEMS or size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write_batch(self, batch: Sequence[_Call[Item, Outcome]]) -> None:
        items = [item for call in batch for item in call.items]
        try:
            outcomes = await self._write(items)
            if outcomes is not None and len(outcomes) != len(items):
                raise RuntimeError(f"{len(items)} items were written and {len(outcomes)} outcomes came back")
        except Exception as error:
            for call in batch:
                if not call.done.done():
                    call.done.set_exception(error)
            return
        except BaseException:
            for call in batch:
                call.done.cancel()
            raise
        first = 0
        for call in batch:
            after = first + len(call.items)
            if not call.done.done():
                call.done.set_result(() if outcomes is None else tuple(outcomes[first:after]))
            first = after
