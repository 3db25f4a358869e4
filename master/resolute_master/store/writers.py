"""Many small appends become few transactions, without a timer.

While one batch is being written, new items wait; a turn of the event loop after the write has ended, all waiting items form the
next batch. So a single append is written at once, and under load batches grow by themselves. A full batch need not wait: the store
receives it while the previous one is still being written, and can prepare its rows meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from resolute.errors import FailedPrecondition
from resolute_master.batches import in_batches
from resolute_master.store.base import Unstorable
from resolute_master.store.fair_queue import FairQueue

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

Write = Callable[[Sequence[Item]], Coroutine[None, None, Sequence[Outcome] | None]]
"""Stores a batch, all or nothing, and returns the outcome of each item; None without outcomes. Called a second time before
the first call has returned, it stores in the order of the calls."""

Publish = Callable[[Sequence[Item], Sequence[Outcome] | None], Coroutine[None, None, None]]
"""Makes a stored batch known before its callers are answered. Called in the order of the batches, while a large next is written."""

MAX_BATCH_ITEMS = 500
"""More items in one transaction gain little and delay every caller of it."""

SMALL_BATCH_ITEMS = 100
"""Fewer items wait until the previous batch is published: later items then share their transaction and their publication. Each of
the two costs half a millisecond, whatever its size."""

MAX_BATCH_BYTES = 64 * 1024
"""The same limit for large items, by `size_of`."""

MAX_UNSTORED_ITEMS = 5_000
"""Items accepted and not yet durable. Past this `append` waits: a slow disk slows its writers instead of filling memory."""

RESERVED_ITEMS = 4 * MAX_UNSTORED_ITEMS
"""Up to this number of unstored items, a caller without any does not wait for callers with some."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Item, Outcome]):
    items: tuple[Item, ...]
    size: int
    share: Hashable
    done: asyncio.Future[tuple[Outcome, ...]]


@dataclass(slots=True, eq=False)
class _Writing(Generic[Item, Outcome]):
    """A batch that the store has been given."""

    calls: list[_Call[Item, Outcome]]
    items: list[Item]
    written: asyncio.Task[Sequence[Outcome] | None]


@dataclass(slots=True, eq=False)
class _Stored(Generic[Item, Outcome]):
    """What is durable and not known yet."""

    calls: list[_Call[Item, Outcome]]
    items: list[Item]
    outcomes: list[Outcome] | None
    """None when the stream has none."""
    batches: int = 1
    """With those that failed since the first."""

    def add(self, later: _Stored[Item, Outcome]) -> None:
        self.batches += later.batches
        self.calls += later.calls
        self.items += later.items
        if later.outcomes is not None:
            self.outcomes = (self.outcomes or []) + later.outcomes


class BatchedWriter(Generic[Item, Outcome]):
    """The only writer of one stream.

    The items of one `append` are never divided between transactions, so a call either stored all of them or raised
    and stored none; a call that is larger than a batch is a batch of its own.
    """

    def __init__(
        self,
        write: Write[Item, Outcome],
        *,
        size_of: Callable[[Item], int] | None = None,
        publish: Publish[Item, Outcome] | None = None,
        known_together: int = 1,
    ) -> None:
        """`write` is a store's method; `size_of` is about how many bytes an item takes (not counted when None). While batches
        follow each other, so several of them are published at once; the first then waits for the others to be stored."""
        self._write = write
        self._publish = publish
        self._known_together = known_together
        self._stored: _Stored[Item, Outcome] | None = None
        self._publishing: set[asyncio.Task[None]] = set()
        self._size_of = size_of
        self._waiting: FairQueue[_Call[Item, Outcome]] = FairQueue()
        self._queued = 0
        self._look_again = asyncio.Event()
        self._unstored_of: Counter[Hashable] = Counter()
        self._unstored = 0
        self._admission = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept, for each look for the running one asks the system which process this is."""

    @property
    def unstored(self) -> int:
        """Items that were taken and not answered yet."""
        return self._unstored

    async def append(self, items: Sequence[Item], *, share: Hashable = None) -> tuple[Outcome, ...]:
        """Returns when all items are durable, with one outcome each (none when the stream has none).

        Between shares (tasks, for example) calls are written in turn, so that one with many calls does not delay others. A share
        that has nothing unstored is let in before those that wait for room, up to `RESERVED_ITEMS`.

        Raises what the write of their batch raised; later batches are not affected, and neither are the other calls of a batch
        by one that cannot be stored for what it holds. A caller that is cancelled while it waits does not know whether its items
        were stored.
        """
        if not items:
            return ()
        if self._is_new(share) or (self._room.is_set() and not self._admission.locked()):
            self._refuse_when_closed()
            return await self._enqueue(tuple(items), share).done
        async with self._admission:  # first come, first served when there is no room
            self._refuse_when_closed()
            await self._room.wait()
            self._refuse_when_closed()
            call = self._enqueue(tuple(items), share)
        return await call.done

    def _is_new(self, share: Hashable) -> bool:
        return share is not None and not self._unstored_of[share] and self._unstored < RESERVED_ITEMS

    async def close(self) -> None:
        """Takes nothing more and returns when all that was taken is written, or has failed. Again is a no-op."""
        self._closed = True
        self._room.set()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        while self._publishing:
            await asyncio.wait(self._publishing)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise FailedPrecondition("the stream is closed: the master is stopping; send this again when it is back")

    def _enqueue(self, items: tuple[Item, ...], share: Hashable) -> _Call[Item, Outcome]:
        size = 0 if self._size_of is None else sum(map(self._size_of, items))
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        call: _Call[Item, Outcome] = _Call(items, size, share, self._loop.create_future())
        self._waiting.put(call, share)
        self._queued += len(items)
        if self._queued >= SMALL_BATCH_ITEMS:
            self._look_again.set()
        self._unstored += len(items)
        self._unstored_of[share] += len(items)
        if self._unstored >= MAX_UNSTORED_ITEMS:
            self._room.clear()
        if self._flushing is None:
            # In a context of its own: its log lines are about no single caller.
            self._flushing = asyncio.create_task(self._flush(), name="batched-writer", context=contextvars.Context())
        return call

    async def _flush(self) -> None:
        writing: _Writing[Item, Outcome] | None = None
        try:
            while self._waiting or writing is not None:
                await asyncio.sleep(0)  # calls of the next turn of the loop share the batch
                if writing is None:
                    await self._until(self._is_worth_writing)
                    writing = self._begin()
                    continue
                await self._until(partial(self._may_begin_another, writing))
                ended, writing = writing, None if writing.written.done() else self._begin()
                await self._end(ended)
                await self._make_known(writing is not None)
        finally:
            self._abandon(writing)
            self._flushing = None

    def _abandon(self, writing: _Writing[Item, Outcome] | None) -> None:
        """Only a cancelled flush leaves calls behind; they must not wait for ever."""
        if writing is not None:
            writing.written.cancel()
            self._refuse(writing.calls, asyncio.CancelledError())
        if self._stored is not None:
            self._refuse(self._stored.calls, asyncio.CancelledError())
            self._stored = None
        for call in self._waiting:
            call.done.cancel()
        self._release(tuple(self._waiting))
        self._waiting.clear()
        self._queued = 0
        self._room.set()

    def _is_worth_writing(self) -> bool:
        """The last batch has been made known, or what waits is no small batch."""
        return not self._publishing or self._queued >= SMALL_BATCH_ITEMS

    def _may_begin_another(self, writing: _Writing[Item, Outcome]) -> bool:
        """It has been written, or a full batch waits."""
        return writing.written.done() or self._queued >= MAX_BATCH_ITEMS

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._look_again.clear()
            await self._look_again.wait()

    def _begin(self) -> _Writing[Item, Outcome]:
        batch = self._next_batch()
        items = [item for call in batch for item in call.items]
        writing = _Writing(
            batch, items, asyncio.create_task(self._stored_of(batch, items), name="batched-writer-write")
        )
        writing.written.add_done_callback(lambda _: self._look_again.set())
        return writing

    async def _stored_of(self, batch: list[_Call[Item, Outcome]], items: list[Item]) -> Sequence[Outcome] | None:
        """Writes the batch. Of one that cannot be stored for what is in it, the calls are written one by one: those that can be
        stored remain in `batch` and `items`, the others are refused. What follows may be stored before they are."""
        try:
            return await self._write(items)
        except Unstorable:
            if len(batch) == 1:
                raise
        calls = tuple(batch)
        batch.clear()
        items.clear()
        outcomes: list[Outcome] = []
        for number, call in enumerate(calls):
            try:
                told = await self._write(call.items)
            except Unstorable as error:
                self._refuse([call], error)
                continue
            except BaseException:
                batch += calls[number:]  # stored or not, the others of the batch share what becomes of it
                raise
            batch.append(call)
            items += call.items
            outcomes += told or ()
        return outcomes or None

    def _next_batch(self) -> list[_Call[Item, Outcome]]:
        batch = [self._waiting.take()]
        count, size = len(batch[0].items), batch[0].size
        while self._waiting:
            call = self._waiting.first()
            count, size = count + len(call.items), size + call.size
            if count > MAX_BATCH_ITEMS or size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.take())
        self._queued -= sum(len(call.items) for call in batch)
        return batch

    async def _end(self, writing: _Writing[Item, Outcome]) -> None:
        batch, items = writing.calls, writing.items
        try:
            outcomes = await writing.written
            if outcomes is not None and len(outcomes) != len(items):
                raise RuntimeError(f"{len(items)} items were written, but {len(outcomes)} outcomes were returned")
        except BaseException as error:
            self._refuse(batch, error)
            if not isinstance(error, Exception):
                raise
            if self._stored is not None:
                self._stored.batches += 1  # stored items wait for these writes, whatever their result
            return
        if not batch:
            return
        stored = _Stored(batch, items, None if outcomes is None else list(outcomes))
        if self._stored is None:
            self._stored = stored
        else:
            self._stored.add(stored)

    async def _make_known(self, followed: bool) -> None:
        """What is stored, unless the next batch is there, being written or not, to become known with it."""
        stored = self._stored
        if stored is None or ((followed or self._waiting) and stored.batches < self._known_together):
            return
        self._stored = None
        if self._publish is None:
            await self._answer(stored)
            return
        task = asyncio.create_task(self._published(self._publish, stored), name="batched-writer-publish")
        self._publishing.add(task)
        task.add_done_callback(self._made_known)

    def _made_known(self, task: asyncio.Task[None]) -> None:
        self._publishing.discard(task)
        self._look_again.set()

    async def _published(self, publish: Publish[Item, Outcome], stored: _Stored[Item, Outcome]) -> None:
        try:
            await publish(stored.items, stored.outcomes)
        except BaseException as error:
            self._refuse(stored.calls, error)
            if not isinstance(error, Exception):
                raise
        else:
            await self._answer(stored)

    async def _answer(self, stored: _Stored[Item, Outcome]) -> None:
        self._release(stored.calls)
        left = iter(stored.outcomes or ())

        def answer(call: _Call[Item, Outcome]) -> None:
            own = tuple(islice(left, len(call.items)))
            if not call.done.done():
                call.done.set_result(own)

        await in_batches(stored.calls, answer)

    def _refuse(self, batch: Sequence[_Call[Item, Outcome]], error: BaseException) -> None:
        for call in batch:
            if call.done.done():
                continue
            if isinstance(error, Exception):
                call.done.set_exception(error)
            else:
                call.done.cancel()
        self._release(batch)

    def _release(self, batch: Sequence[_Call[Item, Outcome]]) -> None:
        for call in batch:
            self._unstored -= len(call.items)
            self._unstored_of[call.share] -= len(call.items)
            if not self._unstored_of[call.share]:
                del self._unstored_of[call.share]
        if self._unstored < MAX_UNSTORED_ITEMS or self._closed:
            self._room.set()
