"""What can be done for one waiting allocation: start it, keep something for it, make others leave, or let it wait.

Whoever orders the waiting (`priority`, `fair_share`) offers them here one after the other. What fits starts. What does not fit
is looked at in this order: does room that others are leaving hold it; do machines on their way; do machines that could be
launched; can others be made to leave. The first that holds is kept for it, and nothing that comes later may take it, except
that others are made to leave where that costs less than to wait for machines (`wait_or_evict`). When none holds, the first
such allocation gets a reservation on the agents that will be free for it soonest, and what comes later starts only beside it.
A job with `max_slots` never holds more, counting what is still leaving; what is over waits and holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter

from resolute_master.domain.agent import SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, JobId
from resolute_master.scheduler.demand import demand_of
from resolute_master.scheduler.eviction import Claim, Eviction, Evictions, Precedence
from resolute_master.scheduler.fitting import Refuses, Rooms, divide
from resolute_master.scheduler.machines import Machines
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.plan import Hold, HoldKind, Placement, Plan, Preemption, Reservation
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.unused import Unused
from resolute_master.scheduler.wait_or_evict import decided_again_in_s, never_pays, waits_rather
from resolute_provisioner.model import Demand, Note

RESERVATIONS = 16
"""At most so many have a reservation: enough that room which becomes free is never fought over by those who follow, few enough
that a pool does not empty for work that is far from starting."""


class Line:
    """The waiting allocations of one shape. `stage` is the first thing to try: what failed once is not tried again."""

    __slots__ = ("shape", "stage")

    def __init__(self, shape: Shape, stage: Verdict) -> None:
        self.shape = shape
        self.stage = stage


class Placing:
    """One pass over a pool. `soft_reservations`: what can be preempted again may run on what is reserved. `starts`: the pass
    ends when so many were placed."""

    def __init__(
        self,
        snapshot: PoolSnapshot,
        precedence: Precedence,
        *,
        preemption: bool,
        soft_reservations: bool,
        starts: int | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._preemption = preemption
        self._soft = soft_reservations
        self._starts = starts
        self._rooms = Rooms(snapshot)
        self._machines = Machines(snapshot, self._rooms)
        self._unused = Unused(snapshot)
        self._left_to_others = False
        """Somebody has left a machine to whom it was launched for: nobody who comes later takes such a machine instead."""
        self._precedence = precedence
        self._evictions = Evictions(snapshot, self._rooms, precedence)
        self._job_slots: dict[JobId, int] = {}
        self._head: AllocationId | None = None
        """The first allocation that could not start."""
        self._reserved = False
        """There is a reservation, and no other is given beside it."""
        self._reservations = 0
        self._revisit_at: datetime | None = None
        """When the first of those that may not make others leave yet, or that rather wait, is to be looked at again."""
        self._place: list[Placement] = []
        self._preempt: list[Preemption] = []
        self._holds: list[Hold] = []
        self._reserve_at: list[Reservation] = []
        self._verdicts: dict[AllocationId, Verdict] = {}
        self._failed: dict[Shape, tuple[QueueKey, Verdict]] = {}
        self._unmet: set[object] = set()
        """Needs for which there is no room now or later, and no machine. Nothing but an eviction makes room in a pass."""

    @property
    def full(self) -> bool:
        """Nothing more is to be offered in this pass."""
        return self._starts is not None and len(self._place) >= self._starts

    @property
    def no_room(self) -> bool:
        """Whoever needs slots can start only when others are made to leave."""
        return self._rooms.none and self._machines.none

    @property
    def no_place(self) -> bool:
        """Whoever needs no slots cannot start."""
        return self._rooms.no_place and self._machines.none

    def another_reservation(self) -> None:
        """What follows may have a reservation beside those that were given."""
        self._reserved = self._reservations >= RESERVATIONS

    def line(self, shape: Shape) -> Line:
        """What has failed already for the same need is not tried again."""
        return Line(shape, Verdict.PREEMPTING if shape.need in self._unmet else Verdict.PLACED)

    def hopeless(self, shape: Shape) -> bool:
        """Nothing can be done for any of this shape unless others are made to leave."""
        return self._reserved and shape.need in self._unmet

    @property
    def all_hopeless(self) -> bool:
        """Nothing can be done for any that needs slots unless others are made to leave."""
        return self._reserved and self._needs <= self._unmet

    @cached_property
    def _needs(self) -> set[object]:
        return {shape.need for shape in self._snapshot.queue if shape.slots > 0}

    @cached_property
    def least_slots(self) -> int:
        """That anybody waits for."""
        return min((shape.slots for shape in self._snapshot.queue if shape.slots > 0), default=0)

    def offer(self, line: Line, key: QueueKey) -> Verdict:
        """Do for it what can be done. After `RESERVED` or worse nothing can be done for others of its line."""
        verdict = self._verdicts[key.allocation] = self._verdict(line, key)
        if verdict >= Verdict.RESERVED:
            self._failed.setdefault(line.shape, (key, verdict))
            if verdict is not Verdict.CAPPED:
                self._unmet.add(line.shape.need)
        return verdict

    def outcome(self) -> Outcome:
        spared = self._evictions.spared()
        plan = Plan(
            place=tuple(self._place),
            preempt=tuple(each for each in self._preempt if each.allocation not in spared),
            reserve=tuple(self._reserve_at),
            demand=Demand()
            if self.full
            else demand_of(
                self._snapshot, self._verdicts, self._failed, self._held_by, self._holds, self._machines.kept_back
            ),
            holds=tuple(self._holds),
            revisit_at=min(filter(None, (self._revisit_at, self._evictions.ripe_at)), default=None),
            notes=tuple(Note(subject=hold.allocation, text=hold.words) for hold in self._holds),
            cut=self.full,
        )
        return Outcome(plan=plan, verdicts=self._verdicts, failed=self._failed)

    # -- one allocation ----------------------------------------------------------------------------------------

    def _verdict(self, line: Line, key: QueueKey) -> Verdict:
        shape, allocation = line.shape, self._snapshot.allocations[key.allocation]
        if shape.capped_job and not self._under_cap(allocation):
            return Verdict.CAPPED
        if line.stage < Verdict.PREEMPTING and shape.need in self._unmet:
            line.stage = Verdict.PREEMPTING  # another line has found out since this one began
        if line.stage is Verdict.PLACED:
            if self._start(shape, allocation):
                return Verdict.PLACED
            if not self._spares_others(shape, allocation):
                line.stage = Verdict.VACATING
        if self._head is None and shape.slots > 0:
            self._head = allocation.id
        verdict = self._keep_something(line, allocation)
        if verdict is not Verdict.WAITING and shape.capped_job:
            self._book(allocation)
        return verdict

    def _keep_something(self, line: Line, allocation: Allocation) -> Verdict:
        shape = line.shape
        if shape.slots == 0:
            return self._count_on_aux(line, allocation)
        if line.stage is Verdict.PLACED:
            self._machines.cover_one(shape.slots, allocation.id, launch=False)
            return Verdict.COMING
        if line.stage in (Verdict.VACATING, Verdict.PREEMPTING) and self._wait_for_leaving(shape, allocation):
            return Verdict.VACATING
        if line.stage <= Verdict.VACATING:
            line.stage = Verdict.COMING
        if line.stage is Verdict.COMING:
            if self._evicts_rather(line, allocation, launch=False):
                return Verdict.PREEMPTING
            if self._count_on_machines(shape, allocation, launch=False):
                return Verdict.COMING
            line.stage = Verdict.LAUNCHABLE
        if line.stage is Verdict.LAUNCHABLE:
            if self._evicts_rather(line, allocation, launch=True):
                return Verdict.PREEMPTING
            if self._count_on_machines(shape, allocation, launch=True):
                return Verdict.LAUNCHABLE
            line.stage = Verdict.PREEMPTING
        if self._preemption and line.stage is Verdict.PREEMPTING:
            if self._make_leave(line, allocation):
                return Verdict.PREEMPTING
            if self._make_leave_beside_machines(line, allocation):
                return Verdict.LAUNCHABLE
            line.stage = Verdict.RESERVED
        if not self._reserved and self._reserve(shape, allocation):
            self._reserved = True
            self._reservations += 1
            return Verdict.RESERVED
        return Verdict.WAITING

    def _refuses(self, shape: Shape, agent: AgentId) -> bool:
        if agent in shape.blocked:
            return True
        return shape.slots > 0 and not shape.preemptible and self._rooms.state(agent).softly_held > 0

    # -- machines that were launched for somebody ----------------------------------------------------------------

    def _spares_others(self, shape: Shape, allocation: Allocation) -> bool:
        """It could start where others are to start, and leaves that to them: its own machine is on its way."""
        if not self._cautious(shape, allocation):
            return False
        if self._where(shape, lambda agent: self._refuses(shape, agent)) is None:
            return False
        self._left_to_others = True
        return True

    def _cautious(self, shape: Shape, allocation: Allocation) -> bool:
        return bool(self._unused) and shape.slots > 0 and self._machines.own(shape.slots, allocation.id)

    def _launched_for_others(self, shape: Shape, allocation: Allocation, agent: AgentId, *, lesser: bool) -> bool:
        """The agent's machine was launched for others, who start there; `lesser` also for those who come after it."""
        return any(
            self._verdicts.get(other.id) is not Verdict.PLACED
            and (lesser or self._snapshot.shape(other).priority <= shape.priority)
            for other in self._unused.expected(agent, allocation)
        )

    # -- starting ----------------------------------------------------------------------------------------------

    def _where(self, shape: Shape, refuses: Refuses) -> list[AgentId] | None:
        """Agents on which it can start now."""
        agent = self._rooms.one_agent(shape.slots, refuses)
        if agent is not None:
            return [agent]
        return None if shape.single_node or shape.slots == 1 else self._rooms.whole_agents(shape.slots, refuses)

    def _start(self, shape: Shape, allocation: Allocation) -> bool:
        def refuses(agent: AgentId) -> bool:
            return self._refuses(shape, agent)

        def spares(agent: AgentId) -> bool:
            return refuses(agent) or self._launched_for_others(shape, allocation, agent, lesser=False)

        if shape.slots == 0:
            agent = self._rooms.aux_agent(refuses)
            if agent is not None:
                self._rooms.take_aux(agent)
                self._placed(allocation, [agent], ())
            return agent is not None
        cautious = self._left_to_others or self._cautious(shape, allocation)
        agents = self._where(shape, spares if cautious else refuses)
        if agents is None:
            return False
        # Rank order: the chief on the largest machine.
        agents.sort(key=lambda id_: (-self._rooms.state(id_).size, id_))
        share = shape.slots if len(agents) == 1 else None
        slots = tuple(
            SlotRef(agent=id_, index=index)
            for id_ in agents
            for index in self._rooms.take(id_, share or self._rooms.state(id_).size)
        )
        if shape.capped_job:
            self._book(allocation)
        self._placed(allocation, agents, slots)
        return True

    def _placed(self, allocation: Allocation, agents: list[AgentId], slots: tuple[SlotRef, ...]) -> None:
        ahead_of = self._head if slots else None
        reason = "next in the queue" if ahead_of is None else f"starts beside {ahead_of}, which cannot start yet"
        self._place.append(
            Placement(allocation=allocation.id, agents=tuple(agents), slots=slots, reason=reason, ahead_of=ahead_of)
        )

    # -- the cap of a job --------------------------------------------------------------------------------------

    def _held_by(self, job: JobId) -> int:
        held = self._job_slots.get(job)
        return (self._snapshot.job_slots.get(job) or 0) if held is None else held

    def _under_cap(self, allocation: Allocation) -> bool:
        """Of slots: what needs none holds no more of them, also when the cap was lowered below what runs."""
        cap, slots = self._snapshot.jobs[allocation.job_id].max_slots, allocation.slots_needed
        return cap is None or slots == 0 or self._held_by(allocation.job_id) + slots <= cap

    def _book(self, allocation: Allocation) -> None:
        self._job_slots[allocation.job_id] = self._held_by(allocation.job_id) + allocation.slots_needed

    # -- keeping something for one that cannot start -------------------------------------------------------------

    def _wait_for_leaving(self, shape: Shape, allocation: Allocation) -> bool:
        def refuses(agent: AgentId) -> bool:
            return self._refuses(shape, agent)

        agent = self._rooms.one_agent_later(shape.slots, refuses)
        if agent is not None:
            return self._hold(allocation, HoldKind.VACATING, {agent: shape.slots})
        if shape.single_node or shape.slots == 1:
            return False
        agents = self._rooms.whole_agents(shape.slots, refuses, later=True)
        if agents is None:
            return False
        return self._hold(allocation, HoldKind.VACATING, {id_: self._rooms.state(id_).size for id_ in agents})

    def _count_on_machines(self, shape: Shape, allocation: Allocation, *, launch: bool) -> bool:
        if self._machines.cover_one(shape.slots, allocation.id, launch=launch):
            return True
        if shape.single_node or shape.slots == 1:
            return False
        present = self._machines.cover_whole(
            shape.slots, allocation.id, lambda agent: self._refuses(shape, agent), launch=launch
        )
        return present is not None and (not present or self._hold(allocation, HoldKind.MACHINES, present))

    def _evicts_rather(self, line: Line, allocation: Allocation, *, launch: bool) -> bool:
        """There are machines to count on, but they come so late that making others leave costs less."""
        shape = line.shape
        if not self._preemption:
            return False
        wait_s = self._machines.wait_for_one(shape.slots, allocation.id, launch=launch)
        if wait_s is None and not (shape.single_node or shape.slots == 1):
            wait_s = self._machines.wait_for_whole(
                shape.slots, allocation.id, lambda agent: self._refuses(shape, agent), launch=launch
            )

        def pays(victim_slots: int, lost_slot_s: float) -> bool:
            return not waits_rather(
                slots=shape.slots, wait_s=wait_s, victim_slots=victim_slots, lost_slot_s=lost_slot_s
            )

        if not never_pays(wait_s) and self._make_leave(line, allocation, pays):
            return True
        # What is still to be launched is coming when this is decided again.
        if wait_s is not None and not launch and self._precedence.any_lesser(self._claim(shape, allocation)):
            self._look_again_at(self._snapshot.now + timedelta(seconds=decided_again_in_s(wait_s)))
        return False

    def _count_on_aux(self, line: Line, allocation: Allocation) -> Verdict:
        for verdict, launch in ((Verdict.COMING, False), (Verdict.LAUNCHABLE, True)):
            if line.stage <= verdict:
                if self._machines.cover_one(0, allocation.id, launch=launch):
                    return verdict
                line.stage = Verdict(verdict + 1)
        return Verdict.WAITING

    def _claim(self, shape: Shape, allocation: Allocation) -> Claim:
        return Claim(
            allocation=allocation,
            slots=shape.slots,
            single_node=shape.single_node,
            where=shape.where,
            refuses=lambda agent: self._refuses(shape, agent),
        )

    def _look_again_at(self, moment: datetime) -> None:
        self._revisit_at = min(moment, self._revisit_at or moment)

    def _make_leave(self, line: Line, allocation: Allocation, pays: Callable[[int, float], bool] | None = None) -> bool:
        if not self._may_make_leave(line.shape, allocation):
            return False
        claim = self._claim(line.shape, allocation)
        eviction = self._evictions.find(claim, line, pays)
        if eviction is None:
            return False
        self._preempted(eviction, claim, allocation)
        return self._hold(allocation, HoldKind.PREEMPTING, dict(eviction.keep))

    def _make_leave_beside_machines(self, line: Line, allocation: Allocation) -> bool:
        """Neither the agents that are there nor the machines that can be had are enough for the gang: both together are."""
        shape = line.shape
        if shape.single_node or not self._may_make_leave(shape, allocation):
            return False
        claim = self._claim(shape, allocation)
        for size, count, more in self._machines.shares(shape.slots):
            present = self._snapshot.sizes.get(size) or 0
            eviction = (
                self._evictions.find_whole(claim, (line, "beside machines", size), size, count - more)
                if 0 < count - more <= present
                else None
            )
            if eviction is not None:
                self._preempted(eviction, claim, allocation)
                return self._count_on_machines(shape, allocation, launch=True)
        return False

    def _may_make_leave(self, shape: Shape, allocation: Allocation) -> bool:
        if not shape.preemptible and self._soft and self._reservations:
            return False
        ripe_at = allocation.requested_at + timedelta(seconds=self._snapshot.policy.preemption_grace_s)
        if self._snapshot.now < ripe_at:
            self._look_again_at(ripe_at)
            return False
        return True

    def _preempted(self, eviction: Eviction, claim: Claim, allocation: Allocation) -> None:
        self._unmet.clear()
        for victim in eviction.victims:
            reason = f"its slots go to {allocation.id}, {self._precedence.reason(claim, victim)}"
            self._preempt.append(Preemption(allocation=victim.id, for_allocation=allocation.id, reason=reason))

    def _reserve(self, shape: Shape, allocation: Allocation) -> bool:
        """Keep the agents that will be free soonest, as far as can be seen, if there are such agents at all.

        An earlier reservation stays where it is: one that followed what looks best now would give away what has become free
        for it, and could wait for ever.
        """
        keep = self._reserved_before(shape, allocation)
        if keep is None:
            keep = self._free_soonest(shape, allocation)
        if keep is None:
            return self._reserve_beside_machines(shape, allocation)
        soft = self._soft and not self._only_spared(self._claim(shape, allocation), keep)
        return self._hold(allocation, HoldKind.RUNNING, keep, soft=soft)

    def _reserve_beside_machines(self, shape: Shape, allocation: Allocation) -> bool:
        """Too few agents are there for the gang: keep those, and the machines that it will need beside them when they are free.

        They are not asked for before. Where what runs may be made to leave, lesser work may have them meanwhile: it has to leave.
        """
        if shape.single_node:
            return False
        for size, count, more in self._machines.shares(shape.slots):
            missing = count - more
            if not 0 < missing <= (self._snapshot.sizes.get(size) or 0):
                continue
            before = {agent: size for agent in allocation.reserved_agents if self._keeps_reserved(shape, agent, size)}
            agents = list(before) if len(before) == missing else []
            agents = agents or self._rooms.emptiest(size, size, missing, lambda agent: self._refuses(shape, agent))
            if len(agents) == missing:
                if not self._soft:
                    self._machines.keep_back(size, more)
                return self._hold(allocation, HoldKind.RUNNING, dict.fromkeys(agents, size), soft=self._soft)
        return False

    def _keeps_reserved(self, shape: Shape, id_: AgentId, size: int) -> bool:
        agent = self._snapshot.agents.get(id_)
        if agent is None or not agent.takes_work or len(agent.usable_slots) != size:
            return False
        return not agent.connected or not (self._refuses(shape, id_) or self._rooms.state(id_).claimed)

    def _only_spared(self, claim: Claim, keep: dict[AgentId, int]) -> bool:
        """Those who use the agents would make room for the claim, if they had run for long enough. Nobody else may begin there
        meanwhile: he would be spared in his turn, and the next one after him, for ever."""
        policy, allocation = self._snapshot.policy, claim.allocation
        graced_until = allocation.requested_at + timedelta(seconds=policy.preemption_grace_s)
        # Who begins now will have run for long enough when the grace of the claim is over.
        graced = self._snapshot.now + timedelta(seconds=policy.min_runtime_s) <= graced_until
        if policy.min_runtime_s == 0 or graced or (not allocation.preemptible and self._reservations):
            return False
        asked = {each.allocation for each in self._preempt}
        for id_, slots in keep.items():
            if not self._rooms.has(id_):
                return False
            usable, state = self._snapshot.agents[id_].usable_slots, self._rooms.state(id_)
            room = len(state.free) + state.leaving
            for mate, occupant in self._snapshot.occupancy.get(id_) or ():
                there = self._snapshot.allocations[mate]
                staying = not occupant.leaving and mate not in asked
                if staying and there.preemptible and self._precedence.yields(there, claim, {}):
                    room += len(usable.intersection(occupant.slots))
            if room < slots:
                return False
        return True

    def _free_soonest(self, shape: Shape, allocation: Allocation) -> dict[AgentId, int] | None:
        """Of the agents that are held for nobody, nor were launched for others who start there first; None when there are not
        enough of them."""

        def refuses(agent: AgentId) -> bool:
            return self._refuses(shape, agent) or self._launched_for_others(shape, allocation, agent, lesser=True)

        sizes = self._snapshot.sizes
        if (sizes.last_key() or 0) >= shape.slots:
            agents = self._rooms.emptiest(shape.slots, sizes.last_key() or 0, 1, refuses)
            if agents:
                return {agents[0]: shape.slots}
        if shape.single_node:
            return None
        mixed = self._snapshot.policy.heterogeneous_fits
        found = {
            size: self._rooms.emptiest(size, size, shape.slots // size, refuses)
            for size, count in sizes.items()
            if size < shape.slots and (mixed or (shape.slots % size == 0 and count >= shape.slots // size))
        }
        parts = divide(shape.slots, {size: len(agents) for size, agents in found.items()}, mixed=mixed)
        if parts is None:
            return None
        return {id_: size for size, count in sorted(parts.items(), reverse=True) for id_ in found[size][:count]}

    def _reserved_before(self, shape: Shape, allocation: Allocation) -> dict[AgentId, int] | None:
        """The agents of an earlier reservation, if they still hold the allocation and nobody more important has a claim on them.

        One whose link is down is waited for as long as it is known: after a restart of the master that is each of them.
        """
        sizes: dict[AgentId, int] = {}
        for id_ in allocation.reserved_agents:
            agent = self._snapshot.agents.get(id_)
            if agent is None or not agent.takes_work or id_ in shape.blocked:
                return None
            if agent.connected and (self._refuses(shape, id_) or self._rooms.state(id_).claimed):
                return None
            sizes[id_] = len(agent.usable_slots)
        if len(sizes) == 1 and max(sizes.values()) >= shape.slots:
            return dict.fromkeys(sizes, shape.slots)
        mixed = self._snapshot.policy.heterogeneous_fits
        # The pool may have been told meanwhile that the machines of a gang are of one size.
        together = (
            not shape.single_node and (mixed or len(set(sizes.values())) == 1) and min(sizes.values(), default=0) > 0
        )
        return sizes if together and sum(sizes.values()) == shape.slots else None

    def _hold(self, allocation: Allocation, kind: HoldKind, agents: dict[AgentId, int], *, soft: bool = False) -> bool:
        for agent, slots in agents.items():
            if agent in self._snapshot.rooms:
                self._rooms.hold(agent, slots, soft=soft)
        self._holds.append(
            Hold(
                allocation=allocation.id, kind=kind, agents=tuple(sorted(agents.items(), key=itemgetter(0))), soft=soft
            )
        )
        if kind is HoldKind.RUNNING and allocation.slots_needed > 1 and set(allocation.reserved_agents) != set(agents):
            # One slot is had wherever the first becomes free: it needs no memory.
            self._reserve_at.append(Reservation(allocation=allocation.id, agents=tuple(sorted(agents))))
        return True
