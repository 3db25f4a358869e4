"""Which lines of logs an agent may write: those of containers that it runs, or has run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from resolute.wire.agent_link import LogLine
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

Origin = tuple[str, str, str]
"""Container, allocation and task that a line names."""

MOST_REMEMBERED = 10_000
"""Containers of one link that need not be looked up again."""


LONGEST_ID = 200


class OwnLines:
    """Selects the log lines of an agent's own containers. Each link of an agent has one."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._own: set[Origin] = set()
        self._looking = asyncio.Lock()

    async def of(self, agent: AgentId, lines: Sequence[LogLine]) -> list[LogLine]:
        """The lines of its own containers. Concurrent calls are answered in order, so that batches stay in order."""
        async with self._looking:
            foreign = {origin for origin in dict.fromkeys(map(_origin, lines)) if not await self._is_own(agent, origin)}
        if not foreign:
            return list(lines)
        own = [line for line in lines if _origin(line) not in foreign]
        named = ", ".join(f"task '{task}', container '{container}'" for container, _, task in sorted(foreign)[:3])
        log.warning(
            "%d line(s) of agent %s are not stored: it runs no such container: %s", len(lines) - len(own), agent, named
        )
        return own

    async def _is_own(self, agent: AgentId, origin: Origin) -> bool:
        if origin in self._own:
            return True
        container, id_, task = origin
        if not (id_.isascii() and id_.isprintable() and len(id_) <= LONGEST_ID):
            return False  # no database is asked for what is no name of ours
        allocation = self._engine.state.get(Allocation, AllocationId(id_))
        if allocation is None:
            allocation = await self._store.allocation(AllocationId(id_))  # over, and no longer in memory
        if allocation is None or allocation.task_id != task:
            return False
        if not any(each.id == container and each.agent == agent for each in allocation.containers):
            return False
        if len(self._own) >= MOST_REMEMBERED:
            self._own.clear()
        self._own.add(origin)
        return True


def _origin(line: LogLine) -> Origin:
    return line.container_id, line.allocation_id, line.task_id
