"""The priority scheduler.

1. Order: priority (1 first), then the job's queue position, its submission, the request, the id. Work with slots and work
   without are two queues that do not wait for each other.
2. What fits starts. What does not fit is looked at in this order: does room that others are leaving hold it; do machines on
   their way; do machines that could be launched; with preemption on, can lesser work be made to leave. The first that
   holds is kept for it, and nothing that comes later may take it.
3. When none holds, the first such allocation of each priority gets a reservation on the agents that will be free for it
   soonest, and what comes later starts only beside it. With preemption on, work that can be preempted again
   may run there meanwhile; what cannot be preempted again makes nobody leave while one that comes before it has only a
   reservation: the reservation would move to the room that was made, and somebody else would have to leave, for ever.
4. So less important work overtakes more important only where that cannot start anyway and is not delayed.
5. A job with `max_slots` never holds more, counting what is still leaving; what is over waits and holds nothing.

The pass reads what it can place or keep, and one allocation of each shape that it cannot: capacity only shrinks during a
pass, so a shape that has failed once has failed for the rest of its priority.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from operator import itemgetter

from resolute_master.domain.agent import SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, JobId
from resolute_master.scheduler.demand import demand_of
from resolute_master.scheduler.eviction import Claim, Evictions
from resolute_master.scheduler.fitting import Rooms, divide
from resolute_master.scheduler.machines import Machines
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.plan import Hold, HoldKind, Placement, Plan, Preemption
from resolute_master.scheduler.snapshot import PoolSnapshot, QueueKey, Shape, Standing
from resolute_provisioner.model import Note


class _Line:
    """The waiting allocations of one shape. `stage` is the first thing to try: what failed once is not tried again."""

    __slots__ = ("entries", "shape", "stage")

    def __init__(self, shape: Shape, entries: Iterator[tuple[QueueKey, AllocationId]]) -> None:
        self.shape = shape
        self.entries = entries
        self.stage = Verdict.PLACED


def schedule(snapshot: PoolSnapshot) -> Plan:
    return run(snapshot).plan


def run(snapshot: PoolSnapshot) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    return _Pass(snapshot).run()


class _Pass:
    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._policy = snapshot.policy
        self._rooms = Rooms(snapshot)
        self._machines = Machines(snapshot, self._rooms)
        self._evictions = Evictions(snapshot, self._rooms)
        self._job_slots: dict[JobId, int] = {}
        self._head: AllocationId | None = None
        """The most important allocation so far that could not start."""
        self._reserved = False
        """This priority has its reservation."""
        self._place: list[Placement] = []
        self._preempt: list[Preemption] = []
        self._holds: list[Hold] = []
        self._verdicts: dict[AllocationId, Verdict] = {}
        self._failed: dict[Shape, tuple[QueueKey, Verdict]] = {}

    def run(self) -> Outcome:
        for _, level in groupby(self._snapshot.queue.items(), key=lambda item: item[0].priority):
            lines = list(level)
            self._reserved = False
            self._level([(shape, line.items()) for shape, line in lines if shape.slots > 0])
            self._level([(shape, line.items()) for shape, line in lines if shape.slots == 0])
        plan = Plan(
            place=tuple(self._place),
            preempt=tuple(self._preempt),
            demand=demand_of(self._snapshot, self._verdicts, self._failed),
            holds=tuple(self._holds),
            notes=tuple(Note(subject=hold.allocation, text=hold.words) for hold in self._holds),
        )
        return Outcome(plan=plan, verdicts=self._verdicts, failed=self._failed)

    def _level(self, lines: list[tuple[Shape, Iterator[tuple[QueueKey, AllocationId]]]]) -> None:
        """Everything of one priority, in queue order, until no shape is left that could get anything."""
        heap = [(next(entries)[0], shape, _Line(shape, entries)) for shape, entries in lines]
        heapify(heap)
        while heap:
            key, shape, line = heap[0]
            verdict = self._offer(line, key)
            if verdict is not Verdict.PLACED:
                self._verdicts[key.allocation] = verdict
            if verdict >= Verdict.RESERVED:
                self._failed[shape] = (key, verdict)
                heappop(heap)
                continue
            following = next(line.entries, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following[0], shape, line))

    # -- one allocation ----------------------------------------------------------------------------------------

    def _offer(self, line: _Line, key: QueueKey) -> Verdict:
        shape, allocation = line.shape, self._snapshot.allocations[key.allocation]
        if shape.capped_job and not self._under_cap(allocation):
            return Verdict.CAPPED
        if line.stage is Verdict.PLACED:
            if self._start(shape, allocation):
                return Verdict.PLACED
            line.stage = Verdict.VACATING
        if self._head is None and shape.slots > 0:
            self._head = allocation.id
        verdict = self._keep_something(line, key, allocation)
        if verdict is not Verdict.WAITING and shape.capped_job:
            self._book(allocation)
        return verdict

    def _keep_something(self, line: _Line, key: QueueKey, allocation: Allocation) -> Verdict:
        shape = line.shape
        if shape.slots == 0:
            return self._count_on_aux(line, allocation)
        if line.stage in (Verdict.VACATING, Verdict.PREEMPTING) and self._wait_for_leaving(shape, allocation):
            return Verdict.VACATING
        if line.stage <= Verdict.VACATING:
            line.stage = Verdict.COMING
        if line.stage is Verdict.COMING:
            if self._count_on_machines(shape, allocation, launch=False):
                return Verdict.COMING
            line.stage = Verdict.LAUNCHABLE
        if line.stage is Verdict.LAUNCHABLE:
            if self._count_on_machines(shape, allocation, launch=True):
                return Verdict.LAUNCHABLE
            line.stage = Verdict.PREEMPTING
        if self._policy.preemption and line.stage is Verdict.PREEMPTING:
            if self._make_leave(shape, key, allocation):
                return Verdict.PREEMPTING
            line.stage = Verdict.RESERVED
        if not self._reserved and self._reserve(shape, allocation):
            self._reserved = True
            return Verdict.RESERVED
        return Verdict.WAITING

    def _refuses(self, shape: Shape, agent: AgentId) -> bool:
        if agent in shape.blocked:
            return True
        return shape.slots > 0 and not shape.preemptible and self._rooms.state(agent).softly_held > 0

    # -- starting ----------------------------------------------------------------------------------------------

    def _start(self, shape: Shape, allocation: Allocation) -> bool:
        def refuses(agent: AgentId) -> bool:
            return self._refuses(shape, agent)

        if shape.slots == 0:
            agent = self._rooms.aux_agent(refuses)
            if agent is not None:
                self._rooms.take_aux(agent)
                self._placed(allocation, [agent], ())
            return agent is not None
        agent = self._rooms.one_agent(shape.slots, refuses)
        if agent is not None:
            agents = [agent]
        elif shape.single_node or shape.slots == 1:
            return False
        else:
            found = self._rooms.whole_agents(shape.slots, refuses)
            if found is None:
                return False
            agents = found
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
        cap = self._snapshot.jobs[allocation.job_id].max_slots
        return cap is None or self._held_by(allocation.job_id) + allocation.slots_needed <= cap

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

    def _count_on_aux(self, line: _Line, allocation: Allocation) -> Verdict:
        for verdict, launch in ((Verdict.COMING, False), (Verdict.LAUNCHABLE, True)):
            if line.stage <= verdict:
                if self._machines.cover_one(0, allocation.id, launch=launch):
                    return verdict
                line.stage = Verdict(verdict + 1)
        return Verdict.WAITING

    def _make_leave(self, shape: Shape, key: QueueKey, allocation: Allocation) -> bool:
        if not shape.preemptible and self._rooms.softly_held:
            return False
        claim = Claim(
            allocation=allocation.id,
            job=allocation.job_id,
            standing=Standing(shape.priority, key.position, allocation.id),
            slots=shape.slots,
            single_node=shape.single_node,
            refuses=lambda agent: self._refuses(shape, agent),
        )
        eviction = self._evictions.find(claim, shape)
        if eviction is None:
            return False
        for victim in eviction.victims:
            reason = f"its slots go to {allocation.id}, {self._before(shape.priority, victim)}"
            self._preempt.append(Preemption(allocation=victim.id, for_allocation=allocation.id, reason=reason))
        return self._hold(allocation, HoldKind.PREEMPTING, dict(eviction.keep))

    def _before(self, priority: int, victim: Allocation) -> str:
        lesser = self._snapshot.priority_of(victim.job_id)
        return (
            "which is earlier in the queue" if lesser == priority else f"which has priority {priority} before {lesser}"
        )

    def _reserve(self, shape: Shape, allocation: Allocation) -> bool:
        """Keep the agents that will be free soonest, as far as can be seen, if there are such agents at all."""

        def refuses(agent: AgentId) -> bool:
            return self._refuses(shape, agent)

        sizes, soft = self._snapshot.sizes, self._policy.preemption
        if (sizes.last_key() or 0) >= shape.slots:
            agents = self._rooms.emptiest(shape.slots, sizes.last_key() or 0, 1, refuses)
            if agents:
                return self._hold(allocation, HoldKind.RUNNING, {agents[0]: shape.slots}, soft=soft)
        if shape.single_node:
            return False
        mixed = self._policy.heterogeneous_fits
        found = {
            size: self._rooms.emptiest(size, size, shape.slots // size, refuses)
            for size, count in sizes.items()
            if size < shape.slots and (mixed or (shape.slots % size == 0 and count >= shape.slots // size))
        }
        parts = divide(shape.slots, {size: len(agents) for size, agents in found.items()}, mixed=mixed)
        if parts is None:
            return False
        keep = {id_: size for size, count in sorted(parts.items(), reverse=True) for id_ in found[size][:count]}
        return self._hold(allocation, HoldKind.RUNNING, keep, soft=soft)

    def _hold(self, allocation: Allocation, kind: HoldKind, agents: dict[AgentId, int], *, soft: bool = False) -> bool:
        for agent, slots in agents.items():
            self._rooms.hold(agent, slots, soft=soft)
        self._holds.append(
            Hold(allocation=allocation.id, kind=kind, agents=tuple(sorted(agents.items(), key=itemgetter(0))))
        )
        return True
