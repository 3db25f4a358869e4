"""The progress of the jobs and the cost of the machines of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Time that starts, saves and losses of work cost, in seconds."""

    restart_s: float = 60.0
    """Time of a restore from a checkpoint."""
    save_s: float = 10.0
    """Time for which preempted work holds its slots."""
    checkpoint_every_s: float = 1800.0
    """Period of checkpoints: work since the last one is lost when a machine goes away without notice."""
    notice_s: float = 120.0
    """Time from the notice to the end of an interrupted machine; 0 for no notice."""


class Fate(StrEnum):
    """Outcome of the work of a job."""

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
    """Its first allocation."""
    submit_s: float
    length_s: float
    """Run time on its slots without any interruption."""
    slots: int
    """Slots that it requests. It may hold more, where only whole machines are assigned."""
    done_s: float = 0.0
    """Progress that is saved."""
    runs: int = 0
    started_s: float | None = None
    """Start of the present run."""
    trained_on_s: float = 0.0
    """Time that the present run trains after the notice of its machine's end."""
    first_start_s: float | None = None
    queued_s: float = 0.0
    """Start of its present wait."""
    waited_s: float = 0.0
    held: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each ended run on its slots."""
    held_on: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    """Machines of each of these runs, with the number of slots."""
    ended_s: float | None = None
    fate: Fate | None = None
    """Its outcome; None until it has ended."""
    interruptions: int = 0
    known_s: float | None = None
    """Length for decisions; None is unknown. Only used with a deadline."""
    begun: float = 0.0
    """The part of it that was saved before the simulation began, 0 to 1."""
    deadline_s: float | None = None
    """Its deadline; None without one."""
    max_cost: float | None = None
    """Limit on the cost of its slots."""

    @property
    def late(self) -> bool:
        """Whether it has missed its deadline."""
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
    """Time until which `cost` is calculated."""
