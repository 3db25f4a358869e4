"""The decision: a delta that names exact slots. The engine may refuse to apply it, but never chooses other slots."""

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
    without slots). `ahead_of` is the more important allocation that still waits, if this one starts as a backfill."""

    allocation: AllocationId
    agents: tuple[AgentId, ...]
    slots: tuple[SlotRef, ...]
    reason: str
    ahead_of: AllocationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Preempt `allocation`: ask it to save and end, so that `for_allocation` can start."""

    allocation: AllocationId
    for_allocation: AllocationId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Record the agents that are reserved for `allocation`, so that the next pass reserves them again."""

    allocation: AllocationId
    agents: tuple[AgentId, ...]


class HoldKind(StrEnum):
    """What a pending allocation waits for on the agents that are held for it."""

    VACATING = "vacating"
    """Other allocations are vacating."""
    PREEMPTING = "preempting"
    """This plan preempts other allocations."""
    MACHINES = "machines"
    """The rest of its machines is starting or can be launched."""
    RUNNING = "running"
    """Other allocations end by themselves."""

    @property
    def until(self) -> str:
        """When the hold ends, as the rest of a sentence."""
        return _UNTIL[self]


_UNTIL = {
    HoldKind.VACATING: "the vacating allocations have ended",
    HoldKind.PREEMPTING: "the preempted allocations have ended",
    HoldKind.MACHINES: "the rest of its machines has joined",
    HoldKind.RUNNING: "enough of the work there has ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Slots that no less important allocation may take, as a number on each of these agents."""

    allocation: AllocationId
    kind: HoldKind
    agents: tuple[tuple[AgentId, int], ...]
    soft: bool = False
    """Preemptible allocations may run there meanwhile."""

    @property
    def words(self) -> str:
        names, verb = ", ".join(agent for agent, _ in self.agents), "are" if len(self.agents) > 1 else "is"
        return f"{names} {verb} kept for {self.allocation} until {self.kind.until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`revisit_at` None: time alone does not change the plan, only an event does. `demand` is for the pool's scaling and
    is empty if the pool never grows. `notes` state which slots are held for which allocation."""

    place: tuple[Placement, ...] = ()
    preempt: tuple[Preemption, ...] = ()
    reserve: tuple[Reservation, ...] = ()
    """The reservations that are new or have moved."""
    demand: Demand = field(default_factory=Demand)
    holds: tuple[Hold, ...] = ()
    revisit_at: datetime | None = None
    notes: tuple[Note, ...] = ()
    cut: bool = False
    """The pass has placed its maximum: another pass follows at once, and only the last one knows the demand."""
