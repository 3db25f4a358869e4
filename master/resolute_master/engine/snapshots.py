"""Writes the whole state to the journal at intervals, so that a replay can start from there.

Entities are immutable, so a list of them, taken between two cycles, stays a consistent state for as long as it is kept. It is
written in small parts beside the cycles: with ten thousand jobs this is seconds of work, which must not block the event loop.
"""

from __future__ import annotations

import asyncio
import logging

from resolute.errors import ResoluteError
from resolute_master.engine.journal import StateWriter
from resolute_master.engine.memory import Memory
from resolute_master.store.base import Snapshot, Store

log = logging.getLogger(__name__)

SLICE_S = 0.002
"""Maximum time of one part of a write, before it yields."""


class Snapshots:
    """Writes snapshots, one at a time. If another one becomes due meanwhile, it is skipped."""

    def __init__(self, store: Store, *, retain: int) -> None:
        self._store = store
        self._retain = retain
        self._writing: asyncio.Task[None] | None = None

    def begin(self, memory: Memory) -> None:
        """Begin to write the present content of the memory; returns at once."""
        if self._writing is not None and not self._writing.done():
            return
        writer = StateWriter(memory.state)
        work = self._write(memory.sequence, memory.digest, writer)
        self._writing = asyncio.create_task(work, name="journal snapshot")

    async def written(self) -> None:
        """Wait for a snapshot in progress, if there is one."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Abandon the snapshot in progress. The journal still begins at the one before."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def _write(self, sequence: int, digest: str, writer: StateWriter) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in writer:
            if loop.time() - begun >= SLICE_S:
                await asyncio.sleep(0)
                begun = loop.time()
        snapshot = Snapshot(sequence=sequence, digest=digest, body=writer.body)
        try:
            await self._store.save_snapshot(snapshot, retain=self._retain)
        except ResoluteError as error:
            log.error("no snapshot of cycle %d: %s; the journal is kept from the one before on", sequence, error)
