"""Allocations: attempts at a task on exact slots, of one or several agents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache

from msgspec import Struct, field

from resolute.wire.agent_link import Exit
from resolute.wire.states import AllocationState, ContainerState, FailureKind, NoticeKind, TaskType
from resolute_master.domain.agent import SlotRef
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, JobId, PoolName, TaskId, TrialId
from resolute_master.domain.worth import ORDINARY, Worth

EVICTION_COUNTS_S = 600.0
"""Lost work that each earlier preemption of a task counts as in the choice of victims. Without it, an allocation that has just
been restarted would have the least to lose and would be chosen each time."""


@lru_cache(maxsize=1)
def _in_words(moment: datetime, zone: tzinfo | None) -> str:
    """The text of a moment, cached: a cycle has a single one. The zone is an argument because equal moments in two zones have
    different texts."""
    return moment.isoformat(timespec="milliseconds")


def remembered(what: str, now: datetime) -> str:
    """An entry of a history."""
    return f"{_in_words(now, now.tzinfo)} {what}"


class Container(Struct, frozen=True, kw_only=True, gc=False):
    """One member of the gang: all slots that the allocation has on one agent. Rank 0 is the chief."""

    id: ContainerId
    rank: int
    agent: AgentId
    slots: tuple[int, ...]
    state: ContainerState = ContainerState.ASSIGNED
    address: str = ""
    exit: Exit | None = None
    daemon: bool = False
    joined: bool = False
    """Whether it has called the rendezvous."""

    @property
    def ended(self) -> bool:
        return self.state is ContainerState.TERMINATED


class PreemptRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A preemption: the allocation is asked to save and end. `deadline` is when it is killed; a notice's deadline comes from its
    machine."""

    reason: str
    requested_at: datetime
    deadline: datetime
    notice: NoticeKind | None = None
    for_another: bool = False
    """Whether the scheduler assigns its slots to another allocation."""
    acknowledged_at: datetime | None = None


class AllocationExit(Struct, frozen=True, kw_only=True, gc=False):
    """How the allocation ended, decided once.

    `failure` None means that it ended well: preempted, killed on request, or by its own decision (`finished`).
    """

    reason: str
    failure: FailureKind | None = None
    code: int | None = None
    finished: bool = False
    error: str = ""
    """The end of the failed container's output: a traceback, or its last lines."""


class Allocation(Struct, frozen=True, kw_only=True, gc=False):
    """An allocation: its request (`slots_needed`, ...), the decision (`containers`), and the events since.

    States only move forward. `history` keeps the last transitions for errors and users.
    """

    id: AllocationId
    task_id: TaskId
    task_type: TaskType
    job_id: JobId
    pool: PoolName
    slots_needed: int
    requested_at: datetime
    trial_id: TrialId | None = None
    run_id: int = 1
    single_node: bool = False
    deadline: datetime | None = None
    """Deadline of its work; None without one."""
    preemptible: bool = True
    preemption_timeout_s: float = 3600.0
    blocked_agents: tuple[AgentId, ...] = ()
    reserved_agents: tuple[AgentId, ...] = ()
    """While it is pending: agents that are reserved for it until enough allocations there have ended."""
    state: AllocationState = AllocationState.PENDING
    containers: tuple[Container, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ready_at: datetime | None = None
    """When its program had started on every machine and the rendezvous was complete."""
    saved_at: datetime | None = None
    """When it reported its newest checkpoint. The steps before then need not be repeated."""
    preempt: PreemptRequest | None = None
    killed_at: datetime | None = None
    kill_reason: str = ""
    first_failure: ContainerId | None = None
    """The container whose failure came before any kill: it decides the exit."""
    exit: AllocationExit | None = None
    evictions: int = 0
    """Number of preemptions of its task in favour of other allocations before this run."""
    worth: Worth = ORDINARY
    """Its worth to its search."""
    resumed_steps: int = 0
    """Steps of the checkpoint from which it started."""
    price_per_hour: float | None = None
    """Price of all its slots together, since their assignment; None without slots, or if a price is unknown."""
    price_moves: bool = False
    """Whether some of its machines have market prices."""
    resumed_checkpoint: str | None = None
    history: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state is AllocationState.TERMINATED

    @property
    def ready(self) -> bool:
        return self.ready_at is not None

    @property
    def running_since(self) -> datetime:
        """When it was started or assigned; while it is pending, when it requested slots."""
        return self.started_at or self.assigned_at or self.requested_at

    @property
    def wasted_since(self) -> datetime:
        """Start of the time that an end would waste on each slot: the steps since the last checkpoint, and the duration of the
        start."""
        given = self.assigned_at or self.running_since
        if self.saved_at is None:
            return given
        return given + max(self.saved_at - (self.ready_at or self.running_since), timedelta(0))

    @property
    def movable(self) -> bool:
        """Whether it may be moved to save money: it is preemptible, and has committed a checkpoint in this run."""
        return self.preemptible and self.saved_at is not None

    @property
    def counted_since(self) -> datetime:
        """`wasted_since`, corrected for earlier preemptions, for the choice of victims."""
        return self.wasted_since - timedelta(seconds=EVICTION_COUNTS_S * self.evictions)

    @property
    def evictions_by_now(self) -> int:
        """Preemptions including that of this run. The next run begins with this number."""
        return self.evictions + (self.preempt is not None and self.preempt.for_another)

    @property
    def leaving(self) -> bool:
        """Whether it was asked to end, or is ending: its slots become free without a further decision."""
        return self.preempt is not None or self.killed_at is not None or self.state is AllocationState.TERMINATING

    @property
    def held_slots(self) -> tuple[SlotRef, ...]:
        """Occupied slots: those of containers that have not ended."""
        return tuple(SlotRef(agent=c.agent, index=i) for c in self.containers if not c.ended for i in c.slots)

    @property
    def slots_held(self) -> int:
        """Number of occupied slots."""
        return sum([len(c.slots) for c in self.containers if not c.ended])
