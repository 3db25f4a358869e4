"""The real master, with a store that records the times of commits.

    python -m benchmarks.restart_master CONFIG_FILE NOTES_FILE

One line of JSON for the first commit of the process, for the first that placed an allocation, and whenever more agents are
connected than before. Times are those of CLOCK_MONOTONIC, which the starting process shares.
"""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # as `resolute_master.__main__` does

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from resolute.config import MasterConfig
from resolute_master import app, main
from resolute_master.domain.agent import Agent
from resolute_master.domain.change import Change
from resolute_master.domain.ids import AgentId
from resolute_master.store.base import Store


class Notes:
    """Lines that one process appends to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._seen: set[str] = set()
        self._connected: set[AgentId] = set()

    def write(self, what: str, **fields: object) -> None:
        line = {"at": time.monotonic(), "cpu_s": time.process_time(), "pid": os.getpid(), "what": what, **fields}
        os.write(self._file, (json.dumps(line) + "\n").encode())

    def committed(self, change: Change) -> None:
        if "boot" not in self._seen:
            self._seen.add("boot")
            self.write("boot", sequence=change.journal.sequence)
            return  # the boot cycle speaks of agents that are not connected
        agents = [entity for entity in change.upserts if isinstance(entity, Agent)]
        fresh = {agent.id for agent in agents if agent.connected} - self._connected
        if fresh:
            self._connected |= fresh
            self.write("agents", connected=len(self._connected))
        placed = sum(decision.kind == "place" for decision in change.decisions)
        if placed and "placed" not in self._seen:
            self._seen.add("placed")
            self.write("placed", allocations=placed, connected=len(self._connected))


class NotingStore:
    """The store, with a record of each durable commit."""

    def __init__(self, inner: Store, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, change: Change) -> None:
        await self._inner.commit(change)
        self._notes.committed(change)


def run(arguments: Sequence[str]) -> int:
    config_file, notes_file = arguments
    notes = Notes(notes_file)
    notes.write("imported")

    async def open_store(config: MasterConfig) -> Store:
        store = await app.open_store(config)
        notes.write("opened")
        return cast(Store, NotingStore(store, notes))

    return main.main(["--config-file", config_file], open_store=open_store)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
