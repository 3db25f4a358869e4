"""Machines that have run nothing yet: which of the allocations that they were launched for can still start there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId
from resolute_master.scheduler.snapshot import PoolSnapshot, waits


class Unused:
    """The unused machines of the supply of one snapshot."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._gangs: Mapping[InstanceId, tuple[str, ...]] = {
            machine.instance: machine.gangs for machine in snapshot.supply.unused
        }

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def agents(self) -> Iterator[AgentId]:
        """Unused machines that accept work, by id."""
        return (id_ for id_ in self._snapshot.rooms if self._launched_for(id_)) if self else iter(())

    def expected(self, agent: AgentId, without: Allocation) -> Iterable[Allocation]:
        """The allocations that the agent's machine was launched for and that can start on it, alone or as one of several; empty if
        `without` is one of them."""
        tokens = self._launched_for(agent)
        if without.id in tokens:
            return ()
        return (each for token in tokens if (each := self._starts_on(agent, AllocationId(token))) is not None)

    def _launched_for(self, id_: AgentId) -> tuple[str, ...]:
        agent = self._snapshot.agents.get(id_) if self._gangs else None
        return () if agent is None or agent.instance_id is None else self._gangs.get(agent.instance_id, ())

    def _starts_on(self, agent: AgentId, id_: AllocationId) -> Allocation | None:
        snapshot, allocation = self._snapshot, self._snapshot.allocations.get(id_)
        if allocation is None or not waits(allocation) or agent in allocation.blocked_agents:
            return None
        room, needed = snapshot.rooms.get(agent), allocation.slots_needed
        if room is None or snapshot.over_cap(allocation):
            return None
        one_of_several = not allocation.single_node and room.size > 0
        in_parts = one_of_several and (snapshot.policy.heterogeneous_fits or needed % room.size == 0)
        return allocation if needed <= room.size or in_parts else None
