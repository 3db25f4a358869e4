"""One attempt at a task on exact slots, of one or several agents."""

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
"""In the choice of victims, each earlier preemption of the task counts as this much lost work: an allocation that has
just been started again has the least to lose, and it would be the same one each time."""


@lru_cache(maxsize=1)
def _in_words(moment: datetime, zone: tzinfo | None) -> str:
    """Everything that a cycle does has one moment. The zone is a part of it: moments of two zones are equal, their words not."""
    return moment.isoformat(timespec="milliseconds")


def remembered(what: str, now: datetime) -> str:
    """What a history keeps of it."""
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
    """It has asked for the rendezvous."""

    @property
    def ended(self) -> bool:
        return self.state is ContainerState.TERMINATED


class PreemptRequest(Struct, frozen=True, kw_only=True, gc=False):
    """The allocation was asked to save and end. `deadline` is when it is killed; a notice's deadline comes from its machine."""

    reason: str
    requested_at: datetime
    deadline: datetime
    notice: NoticeKind | None = None
    for_another: bool = False
    """The scheduler gives its room to another."""
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
    """What was asked for (`slots_needed`, ...), what was decided (`containers`), and what happened.

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
    """By when its work shall be done."""
    preemptible: bool = True
    preemption_timeout_s: float = 3600.0
    blocked_agents: tuple[AgentId, ...] = ()
    reserved_agents: tuple[AgentId, ...] = ()
    """While it is pending: the agents that are reserved for it until enough of the work there has ended."""
    state: AllocationState = AllocationState.PENDING
    containers: tuple[Container, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ready_at: datetime | None = None
    """When its program had begun on every machine, and they had met."""
    saved_at: datetime | None = None
    """When it reported the newest of its checkpoints; what was done until then need not be done again."""
    preempt: PreemptRequest | None = None
    killed_at: datetime | None = None
    kill_reason: str = ""
    first_failure: ContainerId | None = None
    """The container whose failure came before any kill: it decides the exit."""
    exit: AllocationExit | None = None
    evictions: int = 0
    """How often its task has made room for another before this run."""
    worth: Worth = ORDINARY
    """To its search."""
    resumed_steps: int = 0
    """Steps of the checkpoint that it started from."""
    price_per_hour: float | None = None
    """Price of all its slots together, since it has them; None without slots, or if the price of one is not known."""
    price_moves: bool = False
    """Some of its machines cost what the market asks at the moment."""
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
        """Since when something of it runs, or is about to; while it waits, since when it has asked for slots."""
        return self.started_at or self.assigned_at or self.requested_at

    @property
    def wasted_since(self) -> datetime:
        """An end at a moment would cost the time from this to that moment once more, on each slot: what was done since the last
        checkpoint, and what its start took."""
        given = self.assigned_at or self.running_since
        if self.saved_at is None:
            return given
        return given + max(self.saved_at - (self.ready_at or self.running_since), timedelta(0))

    @property
    def movable(self) -> bool:
        """It may be moved to save money: it is preemptible, and has committed a checkpoint in this run."""
        return self.preemptible and self.saved_at is not None

    @property
    def counted_since(self) -> datetime:
        """As `wasted_since`, for the choice of victims."""
        return self.wasted_since - timedelta(seconds=EVICTION_COUNTS_S * self.evictions)

    @property
    def evictions_by_now(self) -> int:
        """With that of this run: so the next one begins."""
        return self.evictions + (self.preempt is not None and self.preempt.for_another)

    @property
    def leaving(self) -> bool:
        """It was asked to end, or is ending: its slots will be free without further decision."""
        return self.preempt is not None or self.killed_at is not None or self.state is AllocationState.TERMINATING

    @property
    def held_slots(self) -> tuple[SlotRef, ...]:
        """Slots that are occupied now: those of containers which have not ended."""
        return tuple(SlotRef(agent=c.agent, index=i) for c in self.containers if not c.ended for i in c.slots)

    @property
    def slots_held(self) -> int:
        """How many these are."""
        return sum([len(c.slots) for c in self.containers if not c.ended])
