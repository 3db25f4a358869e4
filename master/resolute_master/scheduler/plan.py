"""What was decided: a delta that names exact slots. Whoever applies it may refuse it, and never chooses again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from resolute_master.domain.agent import SlotRef
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_provisioner.model import Demand, Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`agents` in rank order, the chief on the largest; `slots` grouped by agent in the same order (none for a task
    without slots). `ahead_of` is the more important allocation that still waits, when it starts as a backfill."""

    allocation: AllocationId
    agents: tuple[AgentId, ...]
    slots: tuple[SlotRef, ...]
    reason: str
    ahead_of: AllocationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Ask `allocation` to save and end, so that `for_allocation` can start."""

    allocation: AllocationId
    for_allocation: AllocationId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Remember where room is reserved for `allocation`, so that the next pass reserves it there again."""

    allocation: AllocationId
    agents: tuple[AgentId, ...]


class HoldKind(StrEnum):
    """What a waiting allocation waits for on the agents that are held for it."""

    VACATING = "vacating"
    """Others are leaving."""
    PREEMPTING = "preempting"
    """Others are asked to leave by this plan."""
    MACHINES = "machines"
    """The rest of its machines is on its way or can be had."""
    RUNNING = "running"
    """Others end by themselves."""

    @property
    def until(self) -> str:
        """When the hold ends, in words."""
        return _UNTIL[self]


_UNTIL = {
    HoldKind.VACATING: "those that are leaving have left",
    HoldKind.PREEMPTING: "those that were asked to leave have left",
    HoldKind.MACHINES: "the rest of its machines is there",
    HoldKind.RUNNING: "enough of what runs there has ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Room that nothing less important may take: so many slots on each of these agents."""

    allocation: AllocationId
    kind: HoldKind
    agents: tuple[tuple[AgentId, int], ...]
    soft: bool = False
    """What can be preempted again may run there meanwhile."""

    @property
    def words(self) -> str:
        names, verb = ", ".join(agent for agent, _ in self.agents), "are" if len(self.agents) > 1 else "is"
        return f"{names} {verb} kept for {self.allocation} until {self.kind.until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`revisit_at` None: nothing in the plan changes by time alone, only an event can. `demand` is for the pool's scaling and
    is empty where the pool never grows. `notes` tell people what is kept free and for whom."""

    place: tuple[Placement, ...] = ()
    preempt: tuple[Preemption, ...] = ()
    reserve: tuple[Reservation, ...] = ()
    """The reservations that are new or have moved."""
    demand: Demand = field(default_factory=Demand)
    holds: tuple[Hold, ...] = ()
    revisit_at: datetime | None = None
    notes: tuple[Note, ...] = ()
    cut: bool = False
    """As many were placed as a pass may place: another pass follows at once, and only the last knows the demand."""
