"""Free slots of agents, and what allocations take of them."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.domain.pool import Fitting, PoolPolicy
from resolute_master.scheduler.sorted_map import SortedMap


class Occupant(NamedTuple):
    """What one allocation holds on one agent: slot numbers, and places for containers without slots."""

    slots: tuple[int, ...]
    aux: int
    leaving: bool


class RoomGroup(NamedTuple):
    """Agents that are equivalent for placement: free slots, whether none is used or held, and size.

    The order is that of the best fit: the tightest first, and an agent in use before an idle one.
    """

    free: int
    idle: bool
    size: int


Occupants = tuple[tuple[AllocationId, Occupant], ...]
"""Occupants of an agent, by allocation id."""


class Room(Struct, frozen=True, gc=False):
    """The capacity of an agent that accepts work."""

    agent: AgentId
    size: int
    """Usable slots."""
    free: tuple[int, ...]
    """Numbers of the unused slots."""
    leaving: int
    """The number of slots of vacating allocations."""
    busy: bool
    """Whether a usable slot is in use. Work on a slot that accepts no more work does not count."""
    stays_busy: bool
    """Whether an allocation that is not vacating uses one of these slots."""
    aux: int
    """Containers without slots."""

    @property
    def group(self) -> RoomGroup:
        return RoomGroup(len(self.free), not self.busy, self.size)

    @property
    def later_group(self) -> RoomGroup | None:
        """The group after the vacating allocations have ended; None if there are none."""
        if self.leaving == 0:
            return None
        return RoomGroup(len(self.free) + self.leaving, not self.stays_busy, self.size)


Groups = SortedMap[RoomGroup, SortedMap[AgentId, bool]]


class Place(NamedTuple):
    """An agent that can take one more container without slots; the first in order takes the next."""

    order: tuple[float, ...]
    agent: AgentId

    @staticmethod
    def of(policy: PoolPolicy, agent: AgentId, *, busy: bool, free: int, aux: int) -> Place | None:
        """The place for a container without slots: `best` packs onto agents in use, `worst` spreads. None when the agent is at
        its limit."""
        if aux >= policy.max_aux_containers_per_agent:
            return None
        worst = policy.fitting is Fitting.WORST
        return Place((aux, -free) if worst else (not busy and aux == 0, free, -aux), agent)


def occupants_of(allocation: Allocation | None) -> dict[AgentId, Occupant]:
    found: dict[AgentId, Occupant] = {}
    for container in allocation.containers if allocation is not None else ():
        if not container.ended:
            assert allocation is not None
            there = found.get(container.agent, Occupant((), 0, allocation.leaving))
            slots = tuple(sorted((*there.slots, *container.slots)))
            found[container.agent] = Occupant(slots, there.aux + (not container.slots), allocation.leaving)
    return found


def room_of(agent: Agent | None, occupants: Occupants) -> Room | None:
    """The room of an agent; None if it accepts no work."""
    if agent is None or not agent.placeable:
        return None
    usable, aux = agent.usable_slots, 0
    staying: set[int] = set()
    going: set[int] = set()
    for _, each in occupants:
        (going if each.leaving else staying).update(each.slots)
        aux += each.aux
    staying &= usable
    going = (going & usable) - staying
    return Room(
        agent=agent.id,
        size=len(usable),
        free=tuple(sorted(usable - staying - going)),
        leaving=len(going),
        busy=bool(staying or going),
        stays_busy=bool(staying),
        aux=aux,
    )
