"""Single changes that a user could make to start the allocation, each verified by the scheduler on the changed snapshot.

Of changes that differ in size the least is reported, found by bisection and verified. If other allocations must be preempted first,
the scheduler decides again without them, so that no third allocation takes the slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from resolute.config.resources import MOST_WEIGHT
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, PoolName
from resolute_master.domain.job import Job
from resolute_master.scheduler.blockers import AGENTS_TRIED, opened, switched_on
from resolute_master.scheduler.rehearsal import PassesSpent, Rehearsal, Start
from resolute_master.scheduler.snapshot import PoolSnapshot

LARGEST_AGENT = 2**16
"""Slots: a larger additional agent is not tried."""

LARGEST_WEIGHT = 1024
"""Maximum factor for the weight: beyond it, another change is more useful."""

MORE_AGENT = AgentId("~one-more")
"""Id of a hypothetical agent."""


class Change(StrEnum):
    """The kind of a change; the comments describe `WhatIf.value`."""

    PRIORITY = "priority"
    """The job's priority."""
    AHEAD_OF = "ahead_of"
    """The job is moved ahead of this one."""
    WEIGHT = "weight"
    """The job's weight."""
    POOL = "pool"
    """The job is moved to this pool."""
    SLOTS = "slots"
    """The request has this number of slots."""
    SINGLE_NODE = "single_node"
    """It need not run on one machine: false."""
    MAX_SLOTS = "max_slots"
    """The job's cap."""
    AGENT = "agent"
    """This agent accepts work again, on its enabled slots."""
    AGENT_SLOTS = "agent_slots"
    """This agent accepts work again, on all its slots."""
    AGENTS = "agents"
    """All agents accept work again, on all their slots."""
    BLOCKED_AGENTS = "blocked_agents"
    """No agent is blocked for it: empty."""
    MORE_AGENTS = "more_agents"
    """The pool has one more agent with this number of slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change with which the allocation starts as in `start`. `now` is the current value; empty if there is none."""

    change: Change
    value: str
    now: str = ""
    start: Start

    @property
    def words(self) -> str:
        return _WORDS[self.change].format(value=self.value, now=self.now)


_WORDS = {
    Change.PRIORITY: "priority {value} instead of {now}",
    Change.AHEAD_OF: "a place ahead of job {value}",
    Change.WEIGHT: "weight {value} instead of {now}",
    Change.POOL: "pool {value} instead of {now}",
    Change.SLOTS: "{value} slot(s) instead of {now}",
    Change.SINGLE_NODE: "permission to run on several machines (single_node: {value})",
    Change.MAX_SLOTS: "max_slots {value} instead of {now}",
    Change.AGENT: "agent {value} taking work again",
    Change.AGENT_SLOTS: "agent {value} taking work again on all its slots",
    Change.AGENTS: "agents {value} taking work again on all their slots",
    Change.BLOCKED_AGENTS: "no agent blocked for it",
    Change.MORE_AGENTS: "one more agent of {value} slot(s)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfs:
    """The changes that were found. `complete`: every change was tried; otherwise the passes were used up."""

    found: tuple[WhatIf, ...]
    complete: bool


def what_if(
    snapshot: PoolSnapshot,
    allocation: Allocation,
    base: Start | None,
    rehearsal: Rehearsal,
    others: Mapping[PoolName, PoolSnapshot],
) -> WhatIfs:
    """Changes with which the allocation starts. `base` is its start without a change; `others` are the pools to which its job
    could be moved."""
    tries = _Tries(snapshot, allocation, base, rehearsal)
    found: list[WhatIf] = []
    try:
        for each in (tries.of_the_job(), tries.of_the_pools(others), tries.of_the_request(), tries.of_the_agents()):
            found.extend(each)
    except PassesSpent:
        return WhatIfs(found=tuple(found), complete=False)
    return WhatIfs(found=tuple(found), complete=True)


class _Tries:
    def __init__(
        self, snapshot: PoolSnapshot, allocation: Allocation, base: Start | None, rehearsal: Rehearsal
    ) -> None:
        self._snapshot = snapshot
        self._mine = allocation
        self._base = base
        self._rehearsal = rehearsal

    def _start(self, changed: PoolSnapshot) -> Start | None:
        """The start after a change; None if it is no sooner than without the change, or if others take the slots of the victims."""
        if self._base is None:
            return self._rehearsal.lasting_start(changed, self._mine.id)
        found = self._rehearsal.start(changed, self._mine.id)
        return None if found is None or found.after else found

    def _one(self, change: Change, value: object, changed: PoolSnapshot, now: object = "") -> Iterator[WhatIf]:
        start = self._start(changed)
        if start is not None:
            yield WhatIf(change=change, value=str(value), now=str(now), start=start)

    def _least(self, count: int, changed: Callable[[int], PoolSnapshot]) -> tuple[int, Start] | None:
        """The least of the steps 1 to `count` with which it starts, if it starts with the last; assumes that more is better."""
        if count < 1 or (start := self._start(changed(count))) is None:
            return None
        found, low, high = start, 1, count
        while low < high:
            middle = (low + high) // 2
            start = self._start(changed(middle))
            if start is None:
                low = middle + 1
            else:
                found, high = start, middle
        return high, found

    # -- the job ---------------------------------------------------------------------------------------------------

    def of_the_job(self) -> Iterator[WhatIf]:
        job = self._snapshot.jobs.get(self._mine.job_id)
        if job is None:
            return
        if self._snapshot.shares is not None:
            yield from self._weight(job)
        else:
            yield from self._priority(job)
            yield from self._ahead_of(job)
        if job.max_slots is not None and not job.hold:
            cap = (self._snapshot.job_slots.get(job.id) or 0) + self._mine.slots_needed
            if cap > job.max_slots:
                yield from self._one(Change.MAX_SLOTS, cap, self._with(replace(job, max_slots=cap)), job.max_slots)

    def _with(self, job: Job) -> PoolSnapshot:
        return self._snapshot.with_job(job)

    def _priority(self, job: Job) -> Iterator[WhatIf]:
        found = self._least(
            job.priority - 1,
            lambda step: self._with(replace(job.at_its_time, priority=job.priority - step)),
        )
        if found is not None:
            yield WhatIf(
                change=Change.PRIORITY, value=str(job.priority - found[0]), now=str(job.priority), start=found[1]
            )

    def _ahead_of(self, job: Job) -> Iterator[WhatIf]:
        """A move ahead of the last job of its own priority for which this suffices."""
        present = set(self._snapshot.job_allocations)
        competitors = [
            competitor
            for competitor in self._snapshot.jobs.values()
            if competitor.priority == job.priority
            and competitor.queue_position < job.queue_position
            and competitor.id in present
        ]
        positions = {competitor.queue_position for competitor in competitors}

        @cache  # sorted only if a place ahead of all of them suffices
        def order() -> Sequence[Job]:
            # Of jobs submitted at one moment, ahead of the first: there is no number between them.
            firsts = {
                each.queue_position: each for each in sorted(competitors, key=lambda each: each.place, reverse=True)
            }
            return list(firsts.values())

        def ahead(step: int) -> PoolSnapshot:
            if step == len(positions):
                mine, earlier = min(positions), min(positions) - 1.0
            else:
                mine, earlier = (each.queue_position for each in order()[step - 1 : step + 1])
            return self._with(replace(job, queue_position=(mine + earlier) / 2))

        found = self._least(len(positions), ahead)
        if found is not None:
            yield WhatIf(change=Change.AHEAD_OF, value=order()[found[0] - 1].id, start=found[1])

    def _weight(self, job: Job) -> Iterator[WhatIf]:
        """The weight, to a tenth of its weight. The reported value is exactly the one that was tried: with equal shares the last
        digit matters."""
        scale = job.weight / 10

        def told(step: int) -> str:
            return f"{(10 + step) * scale:.6g}"

        most = min(10 * (LARGEST_WEIGHT - 1), int(MOST_WEIGHT / scale) - 10)
        found = self._least(most, lambda step: self._with(replace(job, weight=float(told(step)))))
        if found is not None:
            yield WhatIf(change=Change.WEIGHT, value=told(found[0]), now=f"{job.weight:g}", start=found[1])

    # -- the pools -------------------------------------------------------------------------------------------------

    def of_the_pools(self, others: Mapping[PoolName, PoolSnapshot]) -> Iterator[WhatIf]:
        job = self._snapshot.jobs.get(self._mine.job_id)
        if job is None:
            return
        for name, other in sorted(others.items()):
            there = other.with_job(job.moved_to(name)).with_allocation(replace(self._mine, pool=name))
            yield from self._one(Change.POOL, name, there, self._snapshot.policy.name)

    # -- the request -----------------------------------------------------------------------------------------------

    def of_the_request(self) -> Iterator[WhatIf]:
        yield from self._fewer_slots()
        if self._mine.single_node and self._mine.slots_needed > 1:
            yield from self._one(Change.SINGLE_NODE, "false", self._asking(single_node=False), "true")
        if self._mine.blocked_agents:
            changed = self._asking(blocked_agents=())
            yield from self._one(Change.BLOCKED_AGENTS, "", changed, ", ".join(sorted(self._mine.blocked_agents)))

    def _asking(self, **changes: object) -> PoolSnapshot:
        return self._snapshot.with_allocation(replace(self._mine, **changes))  # type: ignore[arg-type]

    def _fewer_slots(self) -> Iterator[WhatIf]:
        """The most slots with which it starts: on one agent, or on whole agents of one size."""
        wanted, best = self._mine.slots_needed, None
        for sizes in self._smaller(wanted):
            found = self._largest(sizes)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        if best is not None:
            yield WhatIf(change=Change.SLOTS, value=str(best[0]), now=str(wanted), start=best[1])

    def _largest(self, sizes: Sequence[int]) -> tuple[int, Start] | None:
        found = self._least(len(sizes), lambda step: self._asking(slots_needed=sizes[step - 1]))
        return None if found is None else (sizes[found[0] - 1], found[1])

    def _smaller(self, wanted: int) -> Iterator[range]:
        """Series of smaller requests of one kind, the largest first, bounded by the capacity: fewer slots are as easy to place."""
        largest = min(wanted - 1, self._snapshot.sizes.last_key() or 0)
        yield range(largest, 0, -1)
        supply = self._snapshot.supply
        for size, agents in () if self._mine.single_node else self._snapshot.sizes.items():
            most = agents + len(supply.machines) + supply.room
            yield range(min((wanted - 1) // size, most) * size, size, -size)

    # -- the agents ------------------------------------------------------------------------------------------------

    def of_the_agents(self) -> Iterator[WhatIf]:
        shut = [agent for agent in self._snapshot.agents.values() if opened(agent) != agent]
        some = False
        for agent in shut[:AGENTS_TRIED]:
            for found in self._of_agent(agent):
                some = True
                yield found
        if len(shut) > 1 and not some:
            changed = self._snapshot
            for agent in shut:
                changed = changed.with_agent(opened(agent))
            yield from self._one(Change.AGENTS, ", ".join(agent.id for agent in shut), changed)
        size = self._usual_size()
        if size is not None and size <= LARGEST_AGENT:
            yield from self._one(Change.MORE_AGENTS, size, self._snapshot.with_agent(self._another(size)))

    def _of_agent(self, agent: Agent) -> Iterator[WhatIf]:
        """The flags of the agent first, then those of its slots."""
        whole, some = switched_on(agent), False
        if whole != agent:
            for found in self._one(Change.AGENT, agent.id, self._snapshot.with_agent(whole)):
                some = True
                yield found
        if not some and opened(agent) != whole:
            yield from self._one(Change.AGENT_SLOTS, agent.id, self._snapshot.with_agent(opened(agent)))

    def _usual_size(self) -> int | None:
        sizes = Counter(dict(self._snapshot.sizes.items()))
        scaling = self._snapshot.policy.scaling
        for offer in scaling.offers if scaling is not None and not sizes else ():
            sizes[offer.slots] += 1
        return max(sizes, key=lambda size: (sizes[size], size), default=None)

    def _another(self, size: int) -> Agent:
        now = self._snapshot.now
        devices = (Device(index=i, kind=SlotKind.CPU, brand="", uuid=f"{MORE_AGENT}-{i}") for i in range(size))
        return Agent(
            id=MORE_AGENT,
            pool=self._snapshot.policy.name,
            slots=tuple(Slot(device=device) for device in devices),
            incarnation="",
            address="",
            version="",
            registered_at=now,
            connected_at=now,
        )
