"""The steps for one pending allocation: start it, hold something for it, preempt for it, or let it wait.

`priority` and `fair_share` order the pending allocations and offer them here one after the other. An allocation that fits starts.
Otherwise these steps are tried in order: vacating slots, starting machines, machines that could be launched, preemption. The
first that suffices is held for it, and no later allocation may take it. Preemption comes before waiting for machines if it costs
less (`wait_or_evict`). If no step succeeds, the first such allocation gets a reservation on the agents that will have enough free
slots soonest, and later ones start only beside it. A job with `max_slots` never holds more, including vacating slots; an
allocation over the cap waits and holds nothing.
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
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.plan import Hold, HoldKind, Placement, Plan, Preemption, Reservation
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.unused import Unused
from resolute_master.scheduler.wait_or_evict import decided_again_in_s, never_pays, waiting_is_cheaper
from resolute_provisioner.model import Demand, Note

RESERVATIONS = 16
"""Maximum number of reservations: enough that later allocations do not take slots as they become free, few enough that a pool
does not drain for work that is far from starting."""


class Line:
    """The pending allocations of one shape. `stage` is the first step to try: a step that failed is not tried again."""

    __slots__ = ("shape", "stage")

    def __init__(self, shape: Shape, stage: PlacementResult) -> None:
        self.shape = shape
        self.stage = stage


class Placing:
    """One pass over a pool. `soft_reservations`: preemptible work may run on reserved slots. `starts`: the maximum number of
    placements."""

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
        """Whether an allocation has left a machine to the work that it was launched for: no later one takes such a machine
        instead."""
        self._precedence = precedence
        self._evictions = Evictions(snapshot, self._rooms, precedence)
        self._job_slots: dict[JobId, int] = {}
        self._head: AllocationId | None = None
        """The first allocation that could not start."""
        self._reserved = False
        """Whether there is a reservation, and no further one is made."""
        self._reservations = 0
        self._revisit_at: datetime | None = None
        """When to repeat the decision for the first allocation that may not preempt yet, or that waits instead."""
        self._place: list[Placement] = []
        self._preempt: list[Preemption] = []
        self._holds: list[Hold] = []
        self._reserve_at: list[Reservation] = []
        self._results: dict[AllocationId, PlacementResult] = {}
        self._failed: dict[Shape, tuple[QueueKey, PlacementResult]] = {}
        self._unmet: set[object] = set()
        """Needs without slots now or later, and without a machine. Only a preemption frees slots in a pass."""

    @property
    def full(self) -> bool:
        """Whether the pass has reached its maximum of placements."""
        return self._starts is not None and len(self._place) >= self._starts

    @property
    def no_room(self) -> bool:
        """Whether an allocation with slots can start only by preemption."""
        return self._rooms.none and self._machines.none

    @property
    def no_place(self) -> bool:
        """Whether no allocation without slots can start."""
        return self._rooms.no_place and self._machines.none

    def another_reservation(self) -> None:
        """Allows a further reservation for later allocations."""
        self._reserved = self._reservations >= RESERVATIONS

    def line(self, shape: Shape) -> Line:
        """A line that skips the steps that have failed for the same need."""
        return Line(shape, PlacementResult.PREEMPTING if shape.need in self._unmet else PlacementResult.PLACED)

    def infeasible(self, shape: Shape) -> bool:
        """Whether only preemption can help allocations of this shape."""
        return self._reserved and shape.need in self._unmet

    @property
    def all_infeasible(self) -> bool:
        """Whether only preemption can help any allocation with slots."""
        return self._reserved and self._needs <= self._unmet

    @cached_property
    def _needs(self) -> set[object]:
        return {shape.need for shape in self._snapshot.queue if shape.slots > 0}

    @cached_property
    def least_slots(self) -> int:
        """The smallest number of slots that a pending allocation needs."""
        return min((shape.slots for shape in self._snapshot.queue if shape.slots > 0), default=0)

    def offer(self, line: Line, key: QueueKey) -> PlacementResult:
        """Run the steps for it. After `RESERVED` or worse, the others of its line are infeasible."""
        result = self._results[key.allocation] = self._result(line, key)
        if result >= PlacementResult.RESERVED:
            self._failed.setdefault(line.shape, (key, result))
            if result is not PlacementResult.CAPPED:
                self._unmet.add(line.shape.need)
        return result

    def outcome(self) -> Outcome:
        spared = self._evictions.spared()
        plan = Plan(
            place=tuple(self._place),
            preempt=tuple(each for each in self._preempt if each.allocation not in spared),
            reserve=tuple(self._reserve_at),
            demand=Demand()
            if self.full
            else demand_of(
                self._snapshot, self._results, self._failed, self._held_by, self._holds, self._machines.kept_back
            ),
            holds=tuple(self._holds),
            revisit_at=min(filter(None, (self._revisit_at, self._evictions.ripe_at)), default=None),
            notes=tuple(Note(subject=hold.allocation, text=hold.words) for hold in self._holds),
            cut=self.full,
        )
        return Outcome(plan=plan, results=self._results, failed=self._failed)

    # -- one allocation ----------------------------------------------------------------------------------------

    def _result(self, line: Line, key: QueueKey) -> PlacementResult:
        shape, allocation = line.shape, self._snapshot.allocations[key.allocation]
        if shape.capped_job and not self._under_cap(allocation):
            return PlacementResult.CAPPED
        if line.stage < PlacementResult.PREEMPTING and shape.need in self._unmet:
            line.stage = PlacementResult.PREEMPTING  # another line has failed since this one began
        if line.stage is PlacementResult.PLACED:
            if self._start(shape, allocation):
                return PlacementResult.PLACED
            if not self._spares_others(shape, allocation):
                line.stage = PlacementResult.VACATING
        if self._head is None and shape.slots > 0:
            self._head = allocation.id
        result = self._keep_something(line, allocation)
        if result is not PlacementResult.WAITING and shape.capped_job:
            self._book(allocation)
        return result

    def _keep_something(self, line: Line, allocation: Allocation) -> PlacementResult:
        shape = line.shape
        if shape.slots == 0:
            return self._count_on_aux(line, allocation)
        if line.stage is PlacementResult.PLACED:
            self._machines.cover_one(shape.slots, allocation.id, launch=False)
            return PlacementResult.COMING
        if line.stage in (PlacementResult.VACATING, PlacementResult.PREEMPTING) and self._wait_for_leaving(
            shape, allocation
        ):
            return PlacementResult.VACATING
        if line.stage <= PlacementResult.VACATING:
            line.stage = PlacementResult.COMING
        if line.stage is PlacementResult.COMING:
            if self._prefers_preemption(line, allocation, launch=False):
                return PlacementResult.PREEMPTING
            if self._count_on_machines(shape, allocation, launch=False):
                return PlacementResult.COMING
            line.stage = PlacementResult.LAUNCHABLE
        if line.stage is PlacementResult.LAUNCHABLE:
            if self._prefers_preemption(line, allocation, launch=True):
                return PlacementResult.PREEMPTING
            if self._count_on_machines(shape, allocation, launch=True):
                return PlacementResult.LAUNCHABLE
            line.stage = PlacementResult.PREEMPTING
        if self._preemption and line.stage is PlacementResult.PREEMPTING:
            if self._preempt_for(line, allocation):
                return PlacementResult.PREEMPTING
            if self._preempt_beside_machines(line, allocation):
                return PlacementResult.LAUNCHABLE
            line.stage = PlacementResult.RESERVED
        if not self._reserved and self._reserve(shape, allocation):
            self._reserved = True
            self._reservations += 1
            return PlacementResult.RESERVED
        return PlacementResult.WAITING

    def _refuses(self, shape: Shape, agent: AgentId) -> bool:
        if agent in shape.blocked:
            return True
        return shape.slots > 0 and not shape.preemptible and self._rooms.state(agent).softly_held > 0

    # -- machines that were launched for other work --------------------------------------------------------------

    def _spares_others(self, shape: Shape, allocation: Allocation) -> bool:
        """Whether it could start on machines launched for others, and leaves those to them, because its own machine is starting."""
        if not self._cautious(shape, allocation):
            return False
        if self._where(shape, lambda agent: self._refuses(shape, agent)) is None:
            return False
        self._left_to_others = True
        return True

    def _cautious(self, shape: Shape, allocation: Allocation) -> bool:
        return bool(self._unused) and shape.slots > 0 and self._machines.own(shape.slots, allocation.id)

    def _launched_for_others(self, shape: Shape, allocation: Allocation, agent: AgentId, *, lesser: bool) -> bool:
        """Whether the agent's machine was launched for others, which start there; `lesser` includes less important ones."""
        return any(
            self._results.get(other.id) is not PlacementResult.PLACED
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
        """Whether the job stays within its cap. An allocation without slots is never over the cap, even if the cap was lowered
        below current use."""
        cap, slots = self._snapshot.jobs[allocation.job_id].max_slots, allocation.slots_needed
        return cap is None or slots == 0 or self._held_by(allocation.job_id) + slots <= cap

    def _book(self, allocation: Allocation) -> None:
        self._job_slots[allocation.job_id] = self._held_by(allocation.job_id) + allocation.slots_needed

    # -- holding something for an allocation that cannot start ---------------------------------------------------

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

    def _prefers_preemption(self, line: Line, allocation: Allocation, *, launch: bool) -> bool:
        """Whether machines are available, but join so late that preemption costs less."""
        shape = line.shape
        if not self._preemption:
            return False
        wait_s = self._machines.wait_for_one(shape.slots, allocation.id, launch=launch)
        if wait_s is None and not (shape.single_node or shape.slots == 1):
            wait_s = self._machines.wait_for_whole(
                shape.slots, allocation.id, lambda agent: self._refuses(shape, agent), launch=launch
            )

        def pays(victim_slots: int, lost_slot_s: float) -> bool:
            return not waiting_is_cheaper(
                slots=shape.slots, wait_s=wait_s, victim_slots=victim_slots, lost_slot_s=lost_slot_s
            )

        if not never_pays(wait_s) and self._preempt_for(line, allocation, pays):
            return True
        # When this decision is repeated, a machine that must still be launched is starting.
        if wait_s is not None and not launch and self._precedence.any_lesser(self._claim(shape, allocation)):
            self._look_again_at(self._snapshot.now + timedelta(seconds=decided_again_in_s(wait_s)))
        return False

    def _count_on_aux(self, line: Line, allocation: Allocation) -> PlacementResult:
        for result, launch in ((PlacementResult.COMING, False), (PlacementResult.LAUNCHABLE, True)):
            if line.stage <= result:
                if self._machines.cover_one(0, allocation.id, launch=launch):
                    return result
                line.stage = PlacementResult(result + 1)
        return PlacementResult.WAITING

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

    def _preempt_for(
        self, line: Line, allocation: Allocation, pays: Callable[[int, float], bool] | None = None
    ) -> bool:
        if not self._may_preempt(line.shape, allocation):
            return False
        claim = self._claim(line.shape, allocation)
        eviction = self._evictions.find(claim, line, pays)
        if eviction is None:
            return False
        self._preempted(eviction, claim, allocation)
        return self._hold(allocation, HoldKind.PREEMPTING, dict(eviction.keep))

    def _preempt_beside_machines(self, line: Line, allocation: Allocation) -> bool:
        """Preempts for a gang for which neither the present agents nor the available machines suffice, but both together do."""
        shape = line.shape
        if shape.single_node or not self._may_preempt(shape, allocation):
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

    def _may_preempt(self, shape: Shape, allocation: Allocation) -> bool:
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
        """Hold the agents that are expected to be free soonest, if there are any.

        An earlier reservation stays where it is: a reservation that moved to the currently best agents would give up slots that
        have become free for it, and could wait for ever.
        """
        keep = self._reserved_before(shape, allocation)
        if keep is None:
            keep = self._free_soonest(shape, allocation)
        if keep is None:
            return self._reserve_beside_machines(shape, allocation)
        soft = self._soft and not self._only_spared(self._claim(shape, allocation), keep)
        return self._hold(allocation, HoldKind.RUNNING, keep, soft=soft)

    def _reserve_beside_machines(self, shape: Shape, allocation: Allocation) -> bool:
        """Reserves for a gang that needs more agents than are present: holds those, and the machines that it will need beside
        them when they are free.

        The machines are not requested before. If running work is preemptible, lesser work may use them meanwhile.
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
        """Whether the work on the agents would yield to the claim if it had run for long enough. Nothing else may start there
        meanwhile: it would be protected in turn, and so would the next, without end."""
        policy, allocation = self._snapshot.policy, claim.allocation
        graced_until = allocation.requested_at + timedelta(seconds=policy.preemption_grace_s)
        # Work that starts now will have run for long enough when the grace of the claim is over.
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
        """The agents on which the allocation is expected to start first, among those without a hold that were not launched for
        other work; None if there are not enough."""

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
        """The agents of an earlier reservation, if they still suffice and no more important allocation has a claim on them.

        A disconnected agent stays reserved for as long as it is known: after a restart of the master all agents are.
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
        # The configuration may require machines of one size by now.
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
            # A single slot may become free anywhere: its reservation need not be stored.
            self._reserve_at.append(Reservation(allocation=allocation.id, agents=tuple(sorted(agents))))
        return True
