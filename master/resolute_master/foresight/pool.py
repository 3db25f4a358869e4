"""The state of one pool under virtual time: what waits and runs, its machines, and what was learnt of its offers.

Whoever drives it says what happened; a decider reads it and its decisions are applied here, as the engine would apply them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.agent_link import Device
from resolute.wire.states import NoticeKind, SlotKind
from resolute_master.domain.agent import Agent, MachineNotice, Slot
from resolute_master.domain.allocation import Allocation, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.carried_out import placed
from resolute_master.scheduler.plan import Placement, Preemption, Reservation
from resolute_master.scheduler.rooms import Occupant
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner import risk
from resolute_provisioner.model import (
    Cause,
    InstanceNotice,
    InstanceView,
    Intent,
    Launch,
    Observed,
    Offer,
    OfferBelief,
    RefusalKind,
    Resident,
    Termination,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one decision changes. Nothing, when all is empty."""

    place: tuple[Placement, ...] = ()
    preempt: tuple[Preemption, ...] = ()
    reserve: tuple[Reservation, ...] = ()
    launches: tuple[Launch, ...] = ()
    terminations: tuple[Termination, ...] = ()
    revisit_at: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.place or self.preempt or self.reserve or self.launches or self.terminations)


@dataclass(slots=True, kw_only=True)
class VirtualPool:
    """`machines` are those that are not gone, by id; each has an agent of the same name from its join on."""

    policy: PoolPolicy
    now: datetime
    snapshot: PoolSnapshot
    offers: Mapping[str, Offer]
    machines: dict[InstanceId, InstanceView] = field(default_factory=dict)
    beliefs: dict[str, OfferBelief] = field(default_factory=dict)
    queued: int = 0
    """How often something came into the queue."""
    _launched: int = 0

    @staticmethod
    def empty(policy: PoolPolicy, now: datetime) -> VirtualPool:
        offers = policy.scaling.offers if policy.scaling is not None else ()
        return VirtualPool(
            policy=policy,
            now=now,
            snapshot=PoolSnapshot.build(policy, now=now),
            offers={offer.offer_id: offer for offer in offers},
        )

    def copy(self) -> VirtualPool:
        """Another one in the same state; what happens to either does not concern the other."""
        return replace(self, machines=dict(self.machines), beliefs=dict(self.beliefs))

    # -- what happens to work ----------------------------------------------------------------------------------

    def submitted(self, job: Job, allocation: Allocation) -> None:
        self.queued += 1
        self.snapshot = self.snapshot.with_job(job).with_allocation(allocation)

    def requeued(self, allocation: Allocation) -> None:
        """Another run of work that was cut."""
        self.queued += 1
        self.snapshot = self.snapshot.with_allocation(allocation)

    def ended(self, id_: AllocationId) -> None:
        """The run is over, and its slots are free."""
        allocation = self.snapshot.allocations[id_]
        self.snapshot = self.snapshot.without_allocation(id_)
        self._refresh_occupants({container.agent for container in allocation.containers})

    def job_ended(self, job: Job) -> None:
        self.snapshot = self.snapshot.without_job(job.id)

    # -- what happens to machines ------------------------------------------------------------------------------

    def joined(self, id_: InstanceId) -> None:
        view = self.machines[id_]
        took_s = (self.now - view.requested_at).total_seconds()
        self._learn(view.offer_id, lambda belief: risk.joined(belief, join_time_s=took_s, now=self.now))
        self.machines[id_] = replace(view, joined_at=self.now, agent_connected=True, idle_since=self.now)
        self.snapshot = self.snapshot.with_agent(virtual_agent(self.policy, id_, view.slots, self.now))

    def launched(self, id_: InstanceId) -> None:
        """The cloud has confirmed it."""
        view = self.machines[id_]
        self._learn(view.offer_id, lambda belief: risk.launched(belief, now=self.now))
        self.machines[id_] = replace(view, observed=Observed.RUNNING, launched_at=self.now)

    def refused(self, view: InstanceView, kind: RefusalKind, message: str) -> None:
        """`view`: as it was asked for. What was withdrawn meanwhile was asked for all the same, and its answer is a lesson."""
        self.machines.pop(InstanceId(view.instance_id), None)
        self._learn(
            view.offer_id,
            lambda belief: risk.refused(
                belief, kind, message, asked_at=view.requested_at, now=self.now, token=view.token
            ),
        )

    def noticed(self, id_: InstanceId, deadline: datetime) -> list[AllocationId]:
        """The machine says that it will go away; the answer is what runs there, which is asked to leave."""
        view, kind = self.machines[id_], NoticeKind.INTERRUPTION
        self.machines[id_] = replace(view, notice=InstanceNotice(kind=kind, deadline=deadline))
        agent = self.snapshot.agents.get(AgentId(id_))
        if agent is not None:
            notice = MachineNotice(kind=kind, deadline=deadline, reason="", received_at=self.now)
            self.snapshot = self.snapshot.with_agent(replace(agent, notice=notice))
        return self.ask_to_leave(AgentId(id_), "its machine goes away")

    def gone(self, id_: InstanceId, *, taken: bool) -> list[AllocationId]:
        """The machine is no more. The answer is what ran there: the driver ends it. `taken`: not by our own order."""
        view = self.machines.pop(id_)
        if view.joined_at is not None:
            exposure_s = (self.now - view.joined_at).total_seconds()
            self._learn(
                view.offer_id,
                lambda belief: risk.ended(belief, exposure_s=exposure_s, interrupted=taken, now=self.now),
            )
        elif taken:
            self._learn(view.offer_id, lambda belief: risk.never_joined(belief, now=self.now))
        cut = [allocation for allocation, _ in self.snapshot.occupancy.get(AgentId(id_)) or ()]
        self.snapshot = self.snapshot.without_agent(AgentId(id_))
        return cut

    def repriced(self, offer_id: str, price_per_hour: float) -> None:
        self._learn(offer_id, lambda belief: risk.repriced(belief, price_per_hour, source="the trace", as_of=self.now))

    # -- what was decided --------------------------------------------------------------------------------------

    def apply_schedule(
        self, place: Iterable[Placement], preempt: Iterable[Preemption], reserve: Iterable[Reservation]
    ) -> None:
        for preemption in preempt:
            self._leave(preemption.allocation, preemption.reason, for_another=True)
        for placement in place:
            self._assign(placement)
        for reservation in reserve:
            waits = self.snapshot.allocations[reservation.allocation]
            self.snapshot = self.snapshot.with_allocation(replace(waits, reserved_agents=reservation.agents))

    def apply_launches(self, launches: Sequence[Launch]) -> list[InstanceId]:
        """Machines that are asked for from now on, in the order of the launches."""
        asked: list[InstanceId] = []
        for launch in launches:
            self._launched += 1
            id_ = InstanceId(f"m{self._launched:06d}")
            self.machines[id_] = InstanceView(
                instance_id=id_,
                token=id_,
                offer_id=launch.offer_id,
                slots=self.offers[launch.offer_id].slots,
                intent=Intent.RUN,
                observed=Observed.PENDING,
                requested_at=self.now,
                reserved_for=launch.gang_tokens,
            )
            asked.append(id_)
        return asked

    def drain(self, id_: InstanceId, reason: str) -> list[AllocationId]:
        """Nothing new may be placed there; the answer is what runs there, which is asked to leave."""
        view = self.machines[id_]
        if view.draining_since is not None:
            return []
        self.machines[id_] = replace(view, draining_since=self.now)
        agent = self.snapshot.agents[AgentId(id_)]
        self.snapshot = self.snapshot.with_agent(replace(agent, draining=True))
        return self.ask_to_leave(agent.id, reason)

    def never_joined(self, termination: Termination) -> None:
        if termination.cause is Cause.NEVER_JOINED:
            offer_id = self.machines[InstanceId(termination.instance_id)].offer_id
            self._learn(offer_id, lambda belief: risk.never_joined(belief, now=self.now))

    def ask_to_leave(self, agent: AgentId, reason: str) -> list[AllocationId]:
        """Those on the agent that were not asked before."""
        here = [id_ for id_, _ in self.snapshot.occupancy.get(agent) or ()]
        asked = [id_ for id_ in here if not self.snapshot.allocations[id_].leaving]
        for id_ in asked:
            self._leave(id_, reason)
        return asked

    # -- within ------------------------------------------------------------------------------------------------

    def _leave(self, id_: AllocationId, reason: str, *, for_another: bool = False) -> None:
        allocation = self.snapshot.allocations[id_]
        request = PreemptRequest(reason=reason, requested_at=self.now, deadline=self.now, for_another=for_another)
        self.snapshot = self.snapshot.with_allocation(replace(allocation, preempt=request))
        self._refresh_occupants([container.agent for container in allocation.containers])

    def _assign(self, placement: Placement) -> None:
        waits = self.snapshot.allocations[placement.allocation]
        self.snapshot = self.snapshot.with_allocation(placed(waits, placement, self.now))
        self._refresh_occupants(placement.agents)

    def _refresh_occupants(self, agents: Iterable[AgentId]) -> None:
        for agent in agents:
            view = self.machines.get(InstanceId(agent))
            if view is None:
                continue
            here = self.snapshot.occupancy.get(agent) or ()
            busy = bool(here)
            in_use = [index for _, occupant in here for index in occupant.slots]
            known = self.snapshot.agents.get(agent)
            usable = known.usable_slots if known is not None else frozenset[int]()
            self.machines[InstanceId(agent)] = replace(
                view,
                slots_in_use=len(in_use),
                closed_slots_in_use=sum(index not in usable for index in in_use),
                aux_in_use=sum(occupant.aux for _, occupant in here),
                occupants=tuple(id_ for id_, _ in here),
                residents=tuple(self._resident(id_, occupant) for id_, occupant in here if not occupant.leaving),
                idle_since=None if busy else (view.idle_since or self.now),
            )

    def _resident(self, id_: AllocationId, occupant: Occupant) -> Resident:
        allocation = self.snapshot.allocations[id_]
        return Resident(
            token=id_,
            slots=len(occupant.slots),
            since=allocation.assigned_at or self.now,
            movable=allocation.preemptible and len(allocation.containers) == 1,
        )

    def _learn(self, offer_id: str, lesson: Callable[[OfferBelief], OfferBelief]) -> None:
        self.beliefs[offer_id] = lesson(self.beliefs.get(offer_id) or OfferBelief(offer_id=offer_id))


def virtual_agent(policy: PoolPolicy, id_: InstanceId, slots: int, now: datetime) -> Agent:
    """The agent of a machine that joins."""
    return Agent(
        id=AgentId(id_),
        pool=policy.name,
        slots=_devices(slots),
        incarnation="1",
        address="",
        version="",
        registered_at=now,
        connected_at=now,
        instance_id=id_,
    )


_DEVICES: dict[int, tuple[Slot, ...]] = {}


def _devices(count: int) -> tuple[Slot, ...]:
    """Equal devices are one value, so that snapshots of many machines stay small."""
    if count not in _DEVICES:
        _DEVICES[count] = tuple(
            Slot(device=Device(index=index, kind=SlotKind.CUDA, brand="", uuid="")) for index in range(count)
        )
    return _DEVICES[count]
