"""By what the waiting and the running are ordered and told apart."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from resolute_master.domain.ids import AgentId, AllocationId, JobId


class Shape(NamedTuple):
    """Waiting allocations of one shape have the same chances: when one does not fit, no later one does.

    In order, what needs slots comes before what needs none, each by priority.
    """

    auxiliary: bool
    """It needs no slots."""
    priority: int
    slots: int
    single_node: bool
    preemptible: bool
    blocked: tuple[AgentId, ...]
    capped_job: JobId
    """The job, when it wants more than its own cap allows; else empty."""

    @property
    def need(self) -> tuple[object, ...]:
        """What must be found for it, whoever comes before or after, and whatever cap its job has."""
        return self[2:6]

    @property
    def where(self) -> tuple[object, ...]:
        """The same for all that may go to the same agents in the same way, however many slots they need."""
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
    """What runs, by what its end would cost: the least important first, then by size and by how likely it is needed, then what has
    saved or begun last."""

    negative_priority: int
    slots: int
    likelihood: float
    """How likely its search needs it; 1 for other work. What is wasted counts in this proportion."""
    negative_since: float
    """`Allocation.counted_since`, in seconds."""
    allocation: AllocationId


class Standing(NamedTuple):
    """How important something that runs is; the last is the least important."""

    priority: int
    position: float
    needless: float
    """How unlikely its search needs it (1 - `Worth.likelihood`)."""
    allocation: AllocationId
