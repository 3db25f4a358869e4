"""Everything that a scheduling decision may read: one frozen value per pool; an update costs the size of the change.

Older snapshots stay valid. Values derived from the entities (rooms, queues, sums) are stored beside them, so that a decision
never has to read the whole pool. A snapshot that was updated change by change equals one that was built at once.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import repeat
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, JobId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.usage import Usage
from resolute_master.scheduler.order import Loss, QueueKey, Shape, Standing
from resolute_master.scheduler.rooms import Groups, Occupant, Occupants, Place, Room, RoomGroup, occupants_of, room_of
from resolute_master.scheduler.shares import USER_DEPTH, Member, Shares
from resolute_master.scheduler.sorted_map import Meter, SortedMap
from resolute_master.scheduler.supply import Supply

Key = TypeVar("Key")
Value = TypeVar("Value")


class PoolSnapshot(Struct, frozen=True, kw_only=True, gc=False):
    """The snapshot of a pool. Read the fields, derive with the methods; the constructor is `build`.

    `queue` holds the pending allocations by shape (first the most important priority), each shape in queue order.
    `groups` lists the agents that accept work by their free slots, `later_groups` those with vacating slots by the slots that
    will be free; `sizes` is the number of agents by usable slots, `places` the agents with a place for a container without
    slots, in the order of use. `evictable` has the preemptible allocations with slots under priority scheduling, `losses` the
    same by the cost of preemption, `job_slots` what each job holds now, `job_wants` what each job with a cap holds and waits
    for.
    """

    policy: PoolPolicy
    now: datetime
    supply: Supply
    agents: SortedMap[AgentId, Agent]
    jobs: SortedMap[JobId, Job]
    allocations: SortedMap[AllocationId, Allocation]
    job_allocations: SortedMap[JobId, SortedMap[AllocationId, bool]]
    occupancy: SortedMap[AgentId, Occupants]
    rooms: SortedMap[AgentId, Room]
    groups: Groups
    later_groups: Groups
    sizes: SortedMap[int, int]
    places: SortedMap[Place, bool]
    queue: SortedMap[Shape, SortedMap[QueueKey, AllocationId]]
    job_slots: SortedMap[JobId, int]
    job_wants: SortedMap[JobId, int]
    evictable: SortedMap[Standing, bool]
    losses: SortedMap[Loss, bool]
    shares: Shares | None
    """Only with fair-share scheduling."""
    held: str = ""
    """Why nothing may start in the pool for now, such as an exhausted budget; empty when work may start."""

    # -- building ----------------------------------------------------------------------------------------------

    @staticmethod
    def build(
        policy: PoolPolicy,
        agents: Iterable[Agent] = (),
        jobs: Iterable[Job] = (),
        allocations: Iterable[Allocation] = (),
        supply: Supply | None = None,
        *,
        usage: Iterable[Usage] = (),
        now: datetime,
        meter: Meter | None = None,
    ) -> PoolSnapshot:
        """A snapshot of these entities. Entities of other pools and ended ones are left out, as by `after`."""
        snapshot = PoolSnapshot(
            policy=policy,
            now=now,
            supply=supply or Supply(),
            agents=SortedMap(meter=meter),
            jobs=SortedMap(meter=meter),
            allocations=SortedMap(meter=meter),
            job_allocations=SortedMap(meter=meter),
            occupancy=SortedMap(meter=meter),
            rooms=SortedMap(meter=meter),
            groups=SortedMap(meter=meter),
            later_groups=SortedMap(meter=meter),
            sizes=SortedMap(meter=meter),
            places=SortedMap(meter=meter),
            queue=SortedMap(meter=meter),
            job_slots=SortedMap(meter=meter),
            job_wants=SortedMap(meter=meter),
            evictable=SortedMap(meter=meter),
            losses=SortedMap(meter=meter),
            shares=Shares.empty(meter) if policy.scheduler is SchedulerKind.FAIR_SHARE else None,
        )
        here = replace(
            snapshot,
            agents=SortedMap.of(((a.id, a) for a in agents if a.pool == policy.name), meter=meter),
            # A job that has moved to another pool still orders its remaining allocations here.
            jobs=SortedMap.of(((j.id, j) for j in jobs if not j.ended), meter=meter),
            allocations=SortedMap.of(
                ((a.id, a) for a in allocations if a.pool == policy.name and not a.ended), meter=meter
            ),
        )
        whole = here._all_occupied()._all_listed()
        for each in usage:
            whole = whole.with_usage(each)
        return whole

    # -- deriving ----------------------------------------------------------------------------------------------

    def after(self, changed: Agent | Job | Allocation) -> PoolSnapshot:
        """The snapshot with the new value of an entity of any pool: added, replaced, or removed if it has ended or moved."""
        match changed:
            case Agent():
                return self.with_agent(changed) if changed.pool == self.policy.name else self.without_agent(changed.id)
            case Job():
                here = changed.pool == self.policy.name or changed.id in self.jobs
                return self.with_job(changed) if here else self.without_job(changed.id)
            case Allocation():
                here = changed.pool == self.policy.name
                return self.with_allocation(changed) if here else self.without_allocation(changed.id)

    def with_agent(self, agent: Agent) -> PoolSnapshot:
        if self.agents.get(agent.id) == agent:
            return self
        derived = replace(self, agents=self.agents.set(agent.id, agent))
        derived._fit_room(agent.id)
        return derived

    def without_agent(self, id_: AgentId) -> PoolSnapshot:
        """The snapshot without an agent. Its allocations stay recorded, in case the agent reconnects."""
        agents = self.agents.discard(id_)
        if agents is self.agents:
            return self
        derived = replace(self, agents=agents)
        derived._fit_room(id_)
        return derived

    def with_job(self, job: Job) -> PoolSnapshot:
        if job.ended:
            return self.without_job(job.id)
        before = self.jobs.get(job.id)
        if before == job:
            return self
        return self._with_jobs(job.id, self.jobs.set(job.id, job))

    def without_job(self, id_: JobId) -> PoolSnapshot:
        jobs = self.jobs.discard(id_)
        return self if jobs is self.jobs else self._with_jobs(id_, jobs)

    def with_allocation(self, allocation: Allocation) -> PoolSnapshot:
        if allocation.ended:
            return self.without_allocation(allocation.id)
        before = self.allocations.get(allocation.id)
        if before == allocation:
            return self
        if before is not None and _same_footprint(before, allocation):
            return self._reported(before, allocation)
        derived = replace(self, allocations=self.allocations.set(allocation.id, allocation))
        if before is None:
            derived._want(allocation, 1)
            derived._list(allocation)
        elif waits(before) and _stays(allocation) and _requests_as_much(before, allocation):
            derived._start(before, allocation)
        else:
            derived._unlist(before)
            if not _requests_as_much(before, allocation):
                derived._want(before, -1)
                derived._want(allocation, 1)
            derived._list(allocation)
        if before is None or before.job_id != allocation.job_id:
            mates = self.job_allocations.get(allocation.job_id) or SortedMap(meter=self.meter)
            by_job = self.job_allocations.set(allocation.job_id, mates.set(allocation.id, True))
            derived._set(job_allocations=by_job)
        derived._reoccupy(allocation.id, before, allocation)
        return derived

    def without_allocation(self, id_: AllocationId) -> PoolSnapshot:
        before = self.allocations.get(id_)
        if before is None:
            return self
        mates = self.job_allocations[before.job_id].discard(id_)
        by_job = self.job_allocations
        derived = replace(
            self,
            allocations=self.allocations.discard(id_),
            job_allocations=by_job.set(before.job_id, mates) if len(mates) else by_job.discard(before.job_id),
        )
        derived._unlist(before)
        derived._want(before, -1)
        derived._reoccupy(id_, before, None)
        return derived

    def with_usage(self, usage: Usage) -> PoolSnapshot:
        """The snapshot with the measured charge, in a pool with `usage_half_life`."""
        return self._charged(usage, usage.charged)

    def without_usage(self, usage: Usage) -> PoolSnapshot:
        return self._charged(usage, 0.0)

    def _charged(self, usage: Usage, slots: float) -> PoolSnapshot:
        if self.shares is None or self.policy.usage_half_life_s is None or usage.pool != self.policy.name:
            return self
        shares = self.shares.with_used((str(usage.workspace_id), str(usage.owner)), slots)
        return self if shares is self.shares else replace(self, shares=shares)

    def with_supply(self, supply: Supply) -> PoolSnapshot:
        return self if supply == self.supply else replace(self, supply=supply)

    def keeping(self, keep: Callable[[Allocation], bool]) -> PoolSnapshot:
        """The snapshot with only some of its allocations. It is built at once, which is cheaper than removing many one by one."""
        kept = PoolSnapshot.build(self.policy, supply=self.supply, now=self.now, meter=self.meter)
        allocations = SortedMap.of(((a.id, a) for a in self.allocations.values() if keep(a)), meter=self.meter)
        kept = replace(kept, agents=self.agents, jobs=self.jobs, allocations=allocations, held=self.held)
        kept = kept._all_occupied()._all_listed()
        if kept.shares is None or self.shares is None:
            return kept
        shares = kept.shares
        for group, charged in self.shares.used.items():
            shares = shares.with_used(group, charged) if len(group) == USER_DEPTH else shares
        return replace(kept, shares=shares)

    def at(self, now: datetime) -> PoolSnapshot:
        return replace(self, now=now)

    def with_hold(self, why: str) -> PoolSnapshot:
        """The snapshot with a reason why nothing may start; "" for none."""
        return self if why == self.held else replace(self, held=why)

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def meter(self) -> Meter | None:
        """The meter that all maps of the snapshot share."""
        return self.agents.meter

    def priority_of(self, job: JobId) -> int:
        known = self.jobs.get(job)
        return known.priority if known is not None else self.policy.default_priority

    def queue_key(self, allocation: Allocation) -> QueueKey:
        job = self.jobs.get(allocation.job_id)
        if job is None:
            at = allocation.requested_at
            return QueueKey(at.timestamp(), at, allocation.worth.turn, at, allocation.id)
        turn = allocation.worth.turn
        return QueueKey(job.queue_position, job.submitted_at, turn, allocation.requested_at, allocation.id)

    def shape(self, allocation: Allocation) -> Shape:
        job = self.jobs.get(allocation.job_id)
        return Shape(
            auxiliary=allocation.slots_needed == 0,
            priority=self.priority_of(allocation.job_id) if self.shares is None else 0,
            slots=allocation.slots_needed,
            single_node=allocation.single_node,
            preemptible=allocation.preemptible,
            blocked=tuple(sorted(set(allocation.blocked_agents))),
            capped_job=allocation.job_id if self._may_be_capped(job) else JobId(""),
        )

    def member(self, allocation: Allocation) -> Member:
        """Its job as a member of its groups; an unknown job counts as one of its own."""
        job = self.jobs.get(allocation.job_id)
        if job is not None:
            return self.member_of(job)
        return Member(allocation.job_id, ("", "") if self.policy.hierarchical_shares else (), 1.0)

    def member_of(self, job: Job) -> Member:
        parents = (str(job.workspace_id), str(job.owner)) if self.policy.hierarchical_shares else ()
        return Member(job.id, parents, job.weight)

    def place(self, room: Room) -> Place | None:
        return Place.of(self.policy, room.agent, busy=room.busy, free=len(room.free), aux=room.aux)

    def _may_be_capped(self, job: Job | None) -> bool:
        """Whether the job holds and requests more slots than its cap. A cap that cannot be reached has no effect: allocations
        under such caps share one shape, so a step that failed for one is not tried for the next."""
        return job is not None and job.max_slots is not None and (self.job_wants.get(job.id) or 0) > job.max_slots

    def over_cap(self, allocation: Allocation) -> bool:
        """Whether its job would exceed its cap with it. An allocation without slots is never over the cap."""
        job = self.jobs.get(allocation.job_id)
        if job is None or job.max_slots is None or allocation.slots_needed == 0:
            return False
        return (self.job_slots.get(job.id) or 0) + allocation.slots_needed > job.max_slots

    def standing(self, allocation: Allocation) -> Standing:
        job = self.jobs.get(allocation.job_id)
        position = allocation.requested_at.timestamp() if job is None else job.queue_position
        needless = 1.0 - allocation.worth.likelihood
        return Standing(self.priority_of(allocation.job_id), position, needless, allocation.id)

    def loss(self, allocation: Allocation) -> Loss:
        since = allocation.counted_since.timestamp()
        priority, needed = self.priority_of(allocation.job_id), allocation.worth.likelihood
        return Loss(-priority, allocation.slots_needed, needed, -since, allocation.id)

    def pending(self) -> Iterator[Allocation]:
        """Pending allocations, the most important first."""
        lines = (zip(repeat(shape.priority), waiting) for shape, waiting in self.queue.items())
        return (self.allocations[key.allocation] for _, key in merge(*lines))

    def running(self) -> Iterator[Allocation]:
        """Allocations that hold slots or places and are not vacating, by id."""
        return (a for a in self.allocations.values() if not waits(a) and not a.leaving)

    def leaving(self) -> Iterator[Allocation]:
        """Vacating allocations, by id."""
        return (a for a in self.allocations.values() if not waits(a) and a.leaving)

    # -- indexes, all at once ----------------------------------------------------------------------------------

    def _all_occupied(self) -> PoolSnapshot:
        """With occupancy and free slots of every agent, for a snapshot without them."""
        occupancy: dict[AgentId, list[tuple[AllocationId, Occupant]]] = defaultdict(list)
        job_slots: Counter[JobId] = Counter()
        job_wants: Counter[JobId] = Counter()
        for allocation in self.allocations.values():
            for agent, occupant in occupants_of(allocation).items():
                occupancy[agent].append((allocation.id, occupant))
            job_slots[allocation.job_id] += allocation.slots_held
            job_wants[allocation.job_id] += allocation.slots_needed
        rooms: dict[AgentId, Room] = {}
        for id_, present in self.agents.items():
            room = room_of(present, tuple(occupancy.get(id_, ())))
            if room is not None:
                rooms[id_] = room
        return replace(
            self,
            occupancy=self._sorted((agent, tuple(there)) for agent, there in occupancy.items()),
            job_slots=self._sorted((job, slots) for job, slots in job_slots.items() if slots),
            job_wants=self._sorted((job, slots) for job, slots in job_wants.items() if slots and self._has_cap(job)),
            rooms=self._sorted(rooms.items()),
            sizes=self._sorted(Counter(room.size for room in rooms.values() if room.size).items()),
            places=self._sorted((place, True) for room in rooms.values() if (place := self.place(room)) is not None),
            groups=self._grouped((room.group, id_) for id_, room in rooms.items()),
            later_groups=self._grouped((room.later_group, id_) for id_, room in rooms.items()),
        )

    def _all_listed(self) -> PoolSnapshot:
        """With pending and preemptible allocations, for a snapshot without them."""
        mates: dict[JobId, list[tuple[AllocationId, bool]]] = defaultdict(list)
        queue: dict[Shape, list[tuple[QueueKey, AllocationId]]] = defaultdict(list)
        evictable: list[Allocation] = []
        shares = self.shares
        for allocation in self.allocations.values():
            mates[allocation.job_id].append((allocation.id, True))
            if waits(allocation):
                shape, key = self.shape(allocation), self.queue_key(allocation)
                queue[shape].append((key, allocation.id))
                if shares is not None:
                    shares = shares.with_waiting(self.member(allocation), shape, key)
            elif _stays(allocation) and shares is not None:
                shares = shares.with_running(self.member(allocation), allocation, evictable=allocation.preemptible)
            elif _stays(allocation) and allocation.preemptible:
                evictable.append(allocation)
        return replace(
            self,
            job_allocations=self._sorted((job, self._sorted(held)) for job, held in mates.items()),
            queue=self._sorted((shape, self._sorted(line)) for shape, line in queue.items()),
            evictable=self._sorted((self.standing(allocation), True) for allocation in evictable),
            losses=self._sorted((self.loss(allocation), True) for allocation in evictable),
            shares=shares,
        )

    def _sorted(self, items: Iterable[tuple[Key, Value]]) -> SortedMap[Key, Value]:
        return SortedMap.of(items, meter=self.meter)

    def _grouped(self, members: Iterable[tuple[RoomGroup | None, AgentId]]) -> Groups:
        found: dict[RoomGroup, list[tuple[AgentId, bool]]] = defaultdict(list)
        for group, id_ in members:
            if group is not None:
                found[group].append((id_, True))
        return self._sorted((group, self._sorted(agents)) for group, agents in found.items())

    # -- indexes, one by one -----------------------------------------------------------------------------------
    #
    # These mutate a snapshot that is being derived and not shared yet: an event changes half a dozen indexes, and a copy for each
    # would cost as much as the changes.

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            force_setattr(self, name, value)

    def _with_jobs(self, id_: JobId, jobs: SortedMap[JobId, Job]) -> PoolSnapshot:
        mates = [self.allocations[m] for m in self.job_allocations.get(id_) or ()]
        derived = replace(self)
        for allocation in mates:
            derived._unlist(allocation)
        derived._set(jobs=jobs)
        wants = sum(each.slots_needed for each in mates) if derived._has_cap(id_) else 0
        derived._set(job_wants=_with_sum(self.job_wants, id_, wants))
        for allocation in mates:
            derived._list(allocation)
        return derived

    def _has_cap(self, id_: JobId) -> bool:
        job = self.jobs.get(id_)
        return job is not None and job.max_slots is not None

    def _want(self, allocation: Allocation, sign: int) -> None:
        """Count an allocation that is in no list, or remove it from the count. The other pending allocations of its job are listed
        again when the cap of the job becomes effective or ineffective."""
        job, slots = self.jobs.get(allocation.job_id), allocation.slots_needed
        if job is None or job.max_slots is None or not slots:
            return
        wants = (self.job_wants.get(job.id) or 0) + sign * slots
        changes = self._may_be_capped(job) != (wants > job.max_slots)
        ids = self.job_allocations.get(job.id) or () if changes else ()
        others = [each for id_ in ids if id_ != allocation.id and waits(each := self.allocations[id_])]
        for other in others:
            self._unlist(other)
        self._set(job_wants=_with_sum(self.job_wants, job.id, wants))
        for other in others:
            self._list(other)

    def _list(self, allocation: Allocation) -> None:
        """Add it to the queue, or to the preemptible allocations with slots."""
        shares = self.shares
        if waits(allocation):
            shape, key = self.shape(allocation), self.queue_key(allocation)
            line = self.queue.get(shape) or SortedMap(meter=self.meter)
            self._set(queue=self.queue.set(shape, line.set(key, allocation.id)))
            if shares is not None:
                self._set(shares=shares.with_waiting(self.member(allocation), shape, key))
        elif not _stays(allocation):
            pass
        elif shares is not None:
            member = self.member(allocation)
            self._set(shares=shares.with_running(member, allocation, evictable=allocation.preemptible))
        elif allocation.preemptible:
            evictable = self.evictable.set(self.standing(allocation), True)
            self._set(evictable=evictable, losses=self.losses.set(self.loss(allocation), True))

    def _start(self, before: Allocation, after: Allocation) -> None:
        """`_unlist` and `_list` with one update of the shares: the most frequent expensive change."""
        if self.shares is None:
            self._unlist(before)
            self._list(after)
            return
        shape, key = self.shape(before), self.queue_key(before)
        self._dequeue(shape, key)
        member, evictable = self.member(after), after.preemptible
        self._set(shares=self.shares.with_running(member, after, evictable=evictable, waited=(shape, key)))

    def _dequeue(self, shape: Shape, key: QueueKey) -> None:
        line = self.queue[shape].discard(key)
        self._set(queue=self.queue.set(shape, line) if len(line) else self.queue.discard(shape))

    def _unlist(self, allocation: Allocation) -> None:
        shares = self.shares
        if waits(allocation):
            shape, key = self.shape(allocation), self.queue_key(allocation)
            self._dequeue(shape, key)
            if shares is not None:
                self._set(shares=shares.without_waiting(self.member(allocation), shape, key))
        elif not _stays(allocation):
            pass
        elif shares is not None:
            member = self.member(allocation)
            self._set(shares=shares.without_running(member, allocation, evictable=allocation.preemptible))
        elif allocation.preemptible:
            evictable = self.evictable.discard(self.standing(allocation))
            self._set(evictable=evictable, losses=self.losses.discard(self.loss(allocation)))

    def _reported(self, before: Allocation, after: Allocation) -> PoolSnapshot:
        """The snapshot after a report that does not move the allocation: most reports of a container, and checkpoints."""
        losses, shares, evictable = self.losses, self.shares, self.evictable
        if shares is not None and before.worth != after.worth and _stays(after) and after.preemptible:
            shares = shares.without_running(self.member(before), before, evictable=True)
            shares = shares.with_running(self.member(after), after, evictable=True)
        elif shares is None:
            old, new = self.loss(before), self.loss(after)
            if old != new and old in losses:
                losses = losses.discard(old).set(new, True)
                evictable = evictable.discard(self.standing(before)).set(self.standing(after), True)
        allocations = self.allocations.set(after.id, after)
        return replace(self, allocations=allocations, losses=losses, shares=shares, evictable=evictable)

    def _reoccupy(self, id_: AllocationId, before: Allocation | None, after: Allocation | None) -> None:
        """Move the occupants from what the allocation held to what it holds."""
        old, new = occupants_of(before), occupants_of(after)
        if not (old or new):
            return  # it waits
        occupancy = self.occupancy
        changed = [agent for agent in sorted(old.keys() | new.keys()) if old.get(agent) != new.get(agent)]
        for agent in changed:
            there = [each for each in occupancy.get(agent) or () if each[0] != id_]
            if agent in new:
                insort(there, (id_, new[agent]))
            occupancy = occupancy.set(agent, tuple(there)) if there else occupancy.discard(agent)
        self._set(occupancy=occupancy)
        for allocation, sign in ((before, -1), (after, 1)):
            if allocation is not None:
                self._book(allocation, sign)
        for agent in changed:
            self._fit_room(agent)

    def _book(self, allocation: Allocation, sign: int) -> None:
        held = allocation.slots_held
        if held:
            sums, job = self.job_slots, allocation.job_id
            total = (sums.get(job) or 0) + sign * held
            self._set(job_slots=_with_sum(sums, job, total))

    def _fit_room(self, id_: AgentId) -> None:
        before = self.rooms.get(id_)
        after = room_of(self.agents.get(id_), self.occupancy.get(id_) or ())
        if before == after:
            return
        sizes = self.sizes
        old_size, new_size = before.size if before else 0, after.size if after else 0
        for size, sign in ((old_size, -1), (new_size, 1)) if old_size != new_size else ():
            count = (sizes.get(size) or 0) + sign
            if size:
                sizes = sizes.set(size, count) if count else sizes.discard(size)
        self._set(
            rooms=self.rooms.discard(id_) if after is None else self.rooms.set(id_, after),
            sizes=sizes,
            places=self._replaced(before, after),
            groups=self._regrouped(self.groups, id_, before.group if before else None, after.group if after else None),
            later_groups=self._regrouped(
                self.later_groups, id_, before.later_group if before else None, after.later_group if after else None
            ),
        )

    def _replaced(self, before: Room | None, after: Room | None) -> SortedMap[Place, bool]:
        old, new = (None if room is None else self.place(room) for room in (before, after))
        if old == new:
            return self.places
        places = self.places if old is None else self.places.discard(old)
        return places if new is None else places.set(new, True)

    def _regrouped(self, groups: Groups, id_: AgentId, before: RoomGroup | None, after: RoomGroup | None) -> Groups:
        if before == after:
            return groups
        if before is not None:
            members = groups[before].discard(id_)
            groups = groups.set(before, members) if len(members) else groups.discard(before)
        if after is not None:
            groups = groups.set(after, (groups.get(after) or SortedMap(meter=self.meter)).set(id_, True))
        return groups


def waits(allocation: Allocation) -> bool:
    """Whether it is pending: nothing is assigned yet."""
    return not allocation.containers and not allocation.ended and not allocation.leaving


def _with_sum(sums: SortedMap[JobId, int], job: JobId, total: int) -> SortedMap[JobId, int]:
    """The sums with a new total of a job; a sum of 0 is removed."""
    return sums.set(job, total) if total else sums.discard(job)


def _requests_as_much(before: Allocation, after: Allocation) -> bool:
    return before.job_id == after.job_id and before.slots_needed == after.slots_needed


def _same_footprint(one: Allocation, other: Allocation) -> bool:
    """Whether both are equal in all indexed fields, as after most reports of a container."""
    return (
        one.leaving == other.leaving
        and len(one.containers) == len(other.containers)
        and all(
            a is b or (a.agent == b.agent and a.slots == b.slots and a.ended == b.ended)
            for a, b in zip(one.containers, other.containers, strict=True)
        )
        and one.job_id == other.job_id
        and one.slots_needed == other.slots_needed
        and one.requested_at == other.requested_at
        and one.single_node == other.single_node
        and one.preemptible == other.preemptible
        and one.blocked_agents == other.blocked_agents
        and (one.worth == other.worth or bool(one.containers))
    )


def _stays(allocation: Allocation) -> bool:
    """Whether it holds slots and is not vacating."""
    held = any(container.slots and not container.ended for container in allocation.containers)
    return held and not allocation.leaving and not allocation.ended
