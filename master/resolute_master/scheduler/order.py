"""The keys that order and distinguish pending and running allocations."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from resolute_master.domain.ids import AgentId, AllocationId, JobId


class Shape(NamedTuple):
    """Pending allocations of one shape are equivalent for placement: if one does not fit, no later one does.

    Shapes with slots come before shapes without, each by priority.
    """

    auxiliary: bool
    """Whether it needs no slots."""
    priority: int
    slots: int
    single_node: bool
    preemptible: bool
    blocked: tuple[AgentId, ...]
    capped_job: JobId
    """The job, if it requests more than its own cap allows; else empty."""

    @property
    def need(self) -> tuple[object, ...]:
        """What it needs, independent of its place in the queue and of its job's cap."""
        return self[2:6]

    @property
    def where(self) -> tuple[object, ...]:
        """Equal for all shapes that may use the same agents in the same way, whatever number of slots they need."""
        return self[3:6]


class QueueKey(NamedTuple):
    """Order within one priority."""

    position: float
    submitted_at: datetime
    worth: tuple[float, int, float]
    """`Worth.turn`: it orders the work of one job."""
    requested_at: datetime
    allocation: AllocationId


class Loss(NamedTuple):
    """Running allocations by the cost of ending them: the least important first, then by size and by the likelihood that they are
    needed, then the newest checkpoint or start."""

    negative_priority: int
    slots: int
    likelihood: float
    """The likelihood that its search needs it; 1 for other work. Waste is multiplied by it."""
    negative_since: float
    """`Allocation.counted_since`, in seconds."""
    allocation: AllocationId


class Standing(NamedTuple):
    """The importance of a running allocation; the last is the least important."""

    priority: int
    position: float
    needless: float
    """1 - `Worth.likelihood`: the likelihood that its search does not need it."""
    allocation: AllocationId
