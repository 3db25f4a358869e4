"""The progress of the jobs and the cost of the machines of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What starting, saving and losing work costs, in seconds."""

    restart_s: float = 60.0
    """Time of a restore from a checkpoint."""
    save_s: float = 10.0
    """Time that a preempted one holds its slots."""
    checkpoint_every_s: float = 1800.0
    """What was done since the last multiple is lost when a machine goes without notice."""
    notice_s: float = 120.0
    """Time from the notice to the end of an interrupted machine; 0 for no notice."""


class Fate(StrEnum):
    """How the work of a job has ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    """The pool had given up launching the machines that it needed."""
    STOPPED = "stopped"
    """It had reached the limit of its own cost."""


@dataclass(slots=True, kw_only=True)
class Work:
    """One gang's way from submission to end."""

    job: Job
    first: Allocation
    """As it was submitted."""
    submit_s: float
    length_s: float
    """Run time on its slots without any interruption."""
    slots: int
    """What it asks for; it may have to hold more, where only whole machines serve it."""
    done_s: float = 0.0
    """Progress that is saved."""
    runs: int = 0
    started_s: float | None = None
    """Start of the present run."""
    trained_on_s: float = 0.0
    """Time that the present run trains after the notice of its machine's end."""
    first_start_s: float | None = None
    queued_s: float = 0.0
    """Since when it waits, while it does."""
    waited_s: float = 0.0
    held: list[tuple[float, float]] = field(default_factory=list)
    """From when to when each run that is over held its slots."""
    held_on: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    """On which machines each of these held how many."""
    ended_s: float | None = None
    fate: Fate | None = None
    """None until it has ended."""
    interruptions: int = 0
    known_s: float | None = None
    """`length_s` as decisions know it; None is unknown. Of use with a deadline only."""
    begun: float = 0.0
    """The part of it that was saved before the simulation began, 0 to 1."""
    deadline_s: float | None = None
    """By when it shall be done."""
    max_cost: float | None = None
    """What its slots may cost in all."""

    @property
    def late(self) -> bool:
        """It has missed its deadline."""
        if self.deadline_s is None:
            return False
        return self.fate is not Fate.COMPLETED or self.ended_s is None or self.ended_s > self.deadline_s

    @property
    def held_s(self) -> float:
        return sum(end_s - start_s for start_s, end_s in self.held)


@dataclass(slots=True, kw_only=True)
class Bill:
    """One machine, from its launch to its end."""

    instance: InstanceId
    offer_id: str
    slots: int
    launched_s: float
    joined_s: float | None = None
    ended_s: float | None = None
    cause: str = ""
    cost: float = 0.0
    priced_s: float = 0.0
    """Until when `cost` is calculated."""
