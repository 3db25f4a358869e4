"""The reason why an allocation is pending, in a sentence, and the facts behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.blockers import opened, openings
from resolute_master.scheduler.fitting import Rooms, divide
from resolute_master.scheduler.machines import Machines
from resolute_master.scheduler.order import QueueKey
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.plan import Hold, HoldKind, Placement
from resolute_master.scheduler.rehearsal import Rehearsal, hold_of, result_in, start_in, vacating_for
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.unused import Unused

NAMES_SHOWN = 8
"""Longer lists of names are cut."""

LARGEST_MIX = 2**16
"""Slots: above this, no mix of the possible machine sizes is computed, because their number is unbounded; it is assumed to
exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Free:
    """Free slots by agent, without the agents that are blocked for an allocation: in the snapshot, and after the placements."""

    now: dict[AgentId, int]
    later: dict[AgentId, int]


class Reasons:
    """Sentences about one snapshot and the outcome of its pass. Shared facts are computed once."""

    def __init__(self, snapshot: PoolSnapshot, outcome: Outcome, rehearsal: Rehearsal) -> None:
        """`rehearsal` has a pass left, for the decision without protection times."""
        self._snapshot = snapshot
        self._outcome = outcome
        self._rehearsal = rehearsal
        self._free_without: dict[tuple[AgentId, ...], _Free] = {}

    @cached_property
    def _placements(self) -> dict[AllocationId, Placement]:
        return {placement.allocation: placement for placement in self._outcome.plan.place}

    @cached_property
    def _without_protection(self) -> tuple[PoolSnapshot, Outcome]:
        """The pool without protection times, and the decision there."""
        policy = replace(self._snapshot.policy, preemption_grace_s=0.0, min_runtime_s=0.0)
        eager = replace(self._snapshot, policy=policy)
        return eager, self._rehearsal.run(eager)

    # -- the sentence ------------------------------------------------------------------------------------------

    def reason(self, allocation: Allocation) -> str:
        if self._snapshot.held:
            return f"Nothing starts in the pool: {self._snapshot.held}."
        if (placement := self._placements.get(allocation.id)) is not None:
            return f"{allocation.id} starts now on {names(placement.agents)}."
        result, need = result_in(self._snapshot, self._outcome, allocation), needed(allocation)
        hold = hold_of(self._outcome, allocation.id)
        match result:
            case PlacementResult.CAPPED:
                return self._capped(allocation)
            case PlacementResult.VACATING | PlacementResult.PREEMPTING if hold is not None:
                leaving = vacating_for(self._snapshot, self._outcome, hold)
                return f"It waits for {need} on {_agents(hold)}: {names(leaving)} must end first."
            case PlacementResult.COMING:
                return f"It waits for {need} of machines that are starting{self._spared(allocation)}."
            case PlacementResult.LAUNCHABLE:
                return f"It waits for {need} of machines that the pool may launch."
            case PlacementResult.RESERVED if hold is not None:
                return f"It waits for {need}: {_kept(hold)} for it until {hold.kind.until}{self._no_preemption(allocation)}."
            case _:
                return self._waits(allocation)

    def _spared(self, allocation: Allocation) -> str:
        """Agents that would hold it and are left to others, while its own machine is starting; as the rest of a sentence."""
        snapshot = self._snapshot
        if not any(allocation.id in machine.gangs for machine in snapshot.supply.machines):
            return ""
        shape, unused = snapshot.shape(allocation), Unused(snapshot)
        left = [
            (agent, first)
            for agent in unused.agents()
            if agent not in allocation.blocked_agents and len(snapshot.rooms[agent].free) >= shape.slots
            if (
                first := [
                    o.id for o in unused.expected(agent, allocation) if snapshot.shape(o).priority <= shape.priority
                ]
            )
        ]
        return "".join(f"; {agent} is left to {names(first)}, for which it was launched" for agent, first in left)

    def _capped(self, allocation: Allocation) -> str:
        job = self._snapshot.jobs[allocation.job_id]
        if job.hold:
            return f"Its job is held: {job.hold}."
        held = self._snapshot.job_slots.get(job.id) or 0
        return (
            f"It waits for its own job: max_slots allows {job.max_slots}, {held} are in use, and it needs "
            f"{allocation.slots_needed}."
        )

    def _waits(self, allocation: Allocation) -> str:
        snapshot, need = self._snapshot, needed(allocation)
        if not len(snapshot.rooms) and snapshot.policy.scaling is None:
            return f"It waits for {need}: no agent of the pool accepts work, and the pool launches no machines."
        if (misfit := self.misfit(allocation)) is not None:
            return misfit
        if not len(snapshot.rooms):
            count = len(snapshot.supply.machines)
            coming = f", the {count} starting machine(s) are for earlier work" if count else ""
            return f"It waits for {need}: no agent of the pool accepts work{coming}, and {self._no_launch(allocation)}."
        free = self._free(allocation.blocked_agents)
        if not free.now:
            return (
                f"It waits for {need}: every agent that accepts work is blocked for it "
                f"({names(allocation.blocked_agents)})."
            )
        if allocation.slots_needed == 0:
            return self._no_aux(list(free.now))
        if on := self._fit(allocation, free.later):
            return f"It waits for {need}: {self._kept_from(allocation, on)}."
        if on := self._fit(allocation, free.now):
            return f"It waits for {need}: {self._taken_first(on)}."
        full = self._blocked_from(allocation) or self._full(free.now)
        return f"It waits for {need}: {full}{self._no_preemption(allocation)}."

    def _no_launch(self, allocation: Allocation) -> str:
        """Why no machine that an elastic pool without agents may request serves it."""
        supply = self._snapshot.supply
        if not (supply.room and supply.offers):
            return f"no machine is available ({supply.reason or 'the pool may not launch more'})"
        alone = self._snapshot.with_supply(replace(supply, machines=()))
        machines = Machines(alone, Rooms(alone))
        slots, token = allocation.slots_needed, allocation.id
        held = machines.cover_one(slots, token, launch=True)
        if not held and not allocation.single_node:
            held = machines.cover_whole(slots, token, lambda _: False, launch=True) is not None
        if held:
            return "the machines that may be launched go to earlier work"
        return f"those that may be launched now would not hold it{supply.reason and f' ({supply.reason})'}"

    def _no_aux(self, usable: Sequence[AgentId]) -> str:
        limit = self._snapshot.policy.max_aux_containers_per_agent
        if any(self._snapshot.rooms[agent].aux < limit for agent in usable):
            return "It waits for an auxiliary place: those that are free go to earlier work."
        return f"It waits for an auxiliary place: every agent{self._not_blocked(usable)} has its {limit}."

    # -- free slots that it may not use ---------------------------------------------------------------------------

    def _free(self, blocked: tuple[AgentId, ...]) -> _Free:
        known = self._free_without.get(blocked)
        if known is None:
            now = {agent: len(room.free) for agent, room in self._snapshot.rooms.items() if agent not in blocked}
            later = dict(now)
            for placement in self._outcome.plan.place:
                for slot in placement.slots:
                    if slot.agent in later:
                        later[slot.agent] -= 1
            known = self._free_without[blocked] = _Free(now=now, later=later)
        return known

    def _fit(self, allocation: Allocation, free: dict[AgentId, int]) -> list[AgentId]:
        """Agents whose free slots would hold it if none were held for others: single agents, else all whole ones."""
        slots = allocation.slots_needed
        alone = [agent for agent, count in free.items() if count >= slots]
        if alone or allocation.single_node:
            return alone
        idle = {agent: count for agent, count in free.items() if 0 < count == self._snapshot.rooms[agent].size}
        sizes: dict[int, int] = {}
        for size in idle.values():
            sizes[size] = sizes.get(size, 0) + 1
        parts = divide(slots, sizes, mixed=self._snapshot.policy.heterogeneous_fits)
        return [] if parts is None else [agent for agent, size in idle.items() if size in parts]

    def _kept_from(self, allocation: Allocation, on: Sequence[AgentId]) -> str:
        """The holds on the free slots of these agents."""
        there = set(on)
        holds = [hold for hold in self._outcome.plan.holds if there & {agent for agent, _ in hold.agents}]
        shown = "; ".join(hold.words for hold in holds[:NAMES_SHOWN])
        more = f"; and {len(holds) - NAMES_SHOWN} more" if len(holds) > NAMES_SHOWN else ""
        return f"the free slots that would hold it are kept for others ({shown}{more}){self._soft(allocation, holds)}"

    def _taken_first(self, on: Sequence[AgentId]) -> str:
        """The allocations that get the free slots of these agents."""
        there = set(on)
        first = [p.allocation for p in self._outcome.plan.place if p.slots and not there.isdisjoint(p.agents)]
        return f"the free slots that would hold it go to {names(first)} now"

    def _soft(self, allocation: Allocation, holds: Sequence[Hold]) -> str:
        soft = not allocation.preemptible and all(hold.soft for hold in holds)
        return ", and it could not be preempted again" if soft else ""

    def _blocked_from(self, allocation: Allocation) -> str | None:
        """A sentence if only agents that are blocked for it have enough free slots."""
        on = self._fit(allocation, self._free(()).now)
        blocked = [agent for agent in on if agent in allocation.blocked_agents]
        return f"agents with enough free slots are blocked for it ({names(blocked)})" if blocked else None

    def _full(self, free: dict[AgentId, int]) -> str:
        most, open_for_it = max(free.values(), default=0), self._not_blocked(free)
        if most == 0:
            return f"no slot is free{open_for_it and f' on an agent{open_for_it}'}"
        return f"no agent{open_for_it} has more than {most} free, and whole agents of the right number of slots are not free"

    def _not_blocked(self, usable: Collection[AgentId]) -> str:
        """Restricts a sentence to the usable agents; empty if those are all."""
        return "" if len(usable) == len(self._snapshot.rooms) else " that is not blocked for it"

    def _no_preemption(self, allocation: Allocation) -> str:
        """Why nothing is preempted for it, as the rest of a sentence."""
        snapshot, policy = self._snapshot, self._snapshot.policy
        if snapshot.shares is None and not policy.preemption:
            return ", and this pool does not preempt"
        if (protection := self._protection(allocation)) is not None:
            return f"; other work is preempted only after {protection}"
        if self._behind_a_reservation(allocation):
            return ", and non-preemptible work preempts nothing while earlier work has a reservation"
        return ", and the work that could be preempted for it does not free enough slots"

    def _behind_a_reservation(self, allocation: Allocation) -> bool:
        """Whether it is not preemptible, and comes after an allocation that has only a reservation: a rule of priority
        scheduling."""
        snapshot = self._snapshot
        if allocation.preemptible or snapshot.shares is not None:
            return False
        reserved = [hold.allocation for hold in self._outcome.plan.holds if hold.kind is HoldKind.RUNNING]
        return any(self._turn(snapshot.allocations[other]) < self._turn(allocation) for other in reserved)

    def _turn(self, allocation: Allocation) -> tuple[int, QueueKey]:
        return self._snapshot.priority_of(allocation.job_id), self._snapshot.queue_key(allocation)

    def _protection(self, allocation: Allocation) -> str | None:
        """The times that protect other work for now; None if it would not be preempted anyway."""
        policy = self._snapshot.policy
        since = allocation.requested_at + timedelta(seconds=policy.preemption_grace_s)
        limits = [f"its preemption_grace, at {since:%H:%M:%S} UTC"] if self._snapshot.now < since else []
        limits += [f"they have run for the min_runtime of {policy.min_runtime_s:g} s"] if policy.min_runtime_s else []
        if not limits:
            return None
        eager, outcome = self._without_protection
        return " and after ".join(limits) if start_in(eager, outcome, allocation.id) is not None else None

    # -- infeasible sizes ------------------------------------------------------------------------------------------

    def misfit(self, allocation: Allocation) -> str | None:
        """A sentence if even an empty pool could not hold it."""
        if self._holds(allocation, self._sizes(())):
            return None
        every = self._opened
        for ids in openings(list(every.values())):
            if self._holds(allocation, self._sizes([every[id_] for id_ in ids])):
                return (
                    f"It waits for {needed(allocation)}: the agents that accept work could not hold it even if empty, and "
                    f"{self._closed(ids)}."
                )
        slots, agents = allocation.slots_needed, self._sizes(every.values())
        sizes = {size: count for size, count in sorted(agents.items(), reverse=True) if size and count}
        if allocation.single_node:
            largest = max(sizes, default=0)
            return f"It can never start here: it needs {slots} slots on one machine, and the largest has {largest}."
        kind = (
            "exactly on whole machines" if self._snapshot.policy.heterogeneous_fits else "on whole machines of one size"
        )
        listed = ", ".join(f"{count} of {size}" for size, count in sizes.items()) or "none"
        are = "are" if self._snapshot.policy.scaling is None else "are at most"
        return (
            f"It can never start here: it needs {slots} slots {kind}, and the pool's machines by slots {are}: {listed}."
        )

    @cached_property
    def _opened(self) -> dict[AgentId, Agent]:
        """The agents with anything disabled, as they would be with all slots enabled."""
        return {id_: opened(agent) for id_, agent in self._snapshot.agents.items() if opened(agent) != agent}

    def _sizes(self, open_again: Iterable[Agent]) -> dict[int, int]:
        """The maximum number of agents of each size, if these accepted work on all their slots."""
        snapshot, scaling = self._snapshot, self._snapshot.policy.scaling
        started, launched = self._present[False].copy(), self._present[True].copy()
        for agent in open_again:
            sizes = launched if agent.instance_id is not None else started
            if (room := snapshot.rooms.get(agent.id)) is not None:
                sizes[room.size] -= 1
            sizes[len(agent.slots)] += 1
        launched.update(machine.slots for machine in snapshot.supply.machines)
        for offer in scaling.offers if scaling is not None else ():
            launched[offer.slots] = max(launched[offer.slots], scaling.max_instances if scaling is not None else 0)
        return started + launched

    @cached_property
    def _present(self) -> dict[bool, Counter[int]]:
        """The number of agents that accept work by size: those that were started by hand, and those that were launched."""
        found: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
        for id_, room in self._snapshot.rooms.items():
            found[self._snapshot.agents[id_].instance_id is not None][room.size] += 1
        return found

    def _closed(self, ids: Sequence[AgentId]) -> str:
        """The parts of these agents that take no work."""
        agents = [self._snapshot.agents[id_] for id_ in ids]
        whole = [agent.id for agent in agents if shut_because(agent) is not None]
        parts = [f"{_slots(off)} of {agent.id}" for agent in agents if (off := closed_slots(agent))]
        return f"{names([*whole, *parts])} {_take(len(whole) + sum(len(closed_slots(each)) for each in agents))} none"

    def _holds(self, allocation: Allocation, agents: Mapping[int, int]) -> bool:
        """Whether this number of empty agents of each size would hold it."""
        sizes = {size: count for size, count in agents.items() if size and count}
        if allocation.slots_needed <= max(sizes, default=0):
            return True
        if allocation.single_node:
            return False
        mixed, slots = self._snapshot.policy.heterogeneous_fits, allocation.slots_needed
        if mixed and slots > LARGEST_MIX:
            return sum(size * count for size, count in sizes.items()) >= slots
        return divide(slots, sizes, mixed=mixed) is not None

    # -- the facts ---------------------------------------------------------------------------------------------

    def facts(self, allocation: Allocation) -> Iterator[str]:
        snapshot = self._snapshot
        yield from self._shares(allocation)
        yield from self._given_back(allocation)
        rooms = list(snapshot.rooms.values())
        free, total = sum(len(room.free) for room in rooms), sum(room.size for room in rooms)
        most = max((len(room.free) for room in rooms), default=0)
        yield f"{free} of {total} slots are free, at most {most} of them on one agent."
        others = [hold for hold in self._outcome.plan.holds if hold.allocation != allocation.id]
        for hold in others[:NAMES_SHOWN]:
            yield f"{hold.words}."
        if len(others) > NAMES_SHOWN:
            yield f"{len(others) - NAMES_SHOWN} more allocations have agents that are kept for them."
        yield from self._shut_agents()
        if allocation.blocked_agents:
            yield f"Agents that are blocked for it: {names(allocation.blocked_agents)}."
        unused = Unused(snapshot)
        for agent in islice(unused.agents(), NAMES_SHOWN):
            if expected := [other.id for other in unused.expected(agent, allocation)]:
                yield f"Agent {agent} has run no work yet; its machine was launched for {names(expected)}."
        for machine in snapshot.supply.machines[:NAMES_SHOWN]:
            when = f", expected at {machine.expected_at:%H:%M:%S} UTC" if machine.expected_at else ""
            whose = ", launched for it" if allocation.id in machine.gangs else ""
            yield f"Machine {machine.instance} with {machine.slots} slot(s) is starting{when}{whose}."
        if snapshot.supply.room and snapshot.supply.offers:
            yield f"The pool may launch {snapshot.supply.room} more machine(s)."
        elif snapshot.policy.scaling is not None:
            yield f"The pool can get no more machines now: {snapshot.supply.reason or 'it is at its maximum'}."

    def _given_back(self, allocation: Allocation) -> Iterator[str]:
        """Agents of its reservation that may be released."""
        scaling, hold = self._snapshot.policy.scaling, hold_of(self._outcome, allocation.id)
        if scaling is None or hold is None or hold.kind is not HoldKind.RUNNING:
            return
        if idle := [agent for agent, _ in hold.agents if self._may_idle(agent)]:
            yield (
                f"{names(idle)} may be released before: a reservation keeps no machine without work for longer than "
                f"max_idle_agent_period ({scaling.idle_timeout_s:g} s). The pool then requests others when it can have all "
                "that the work needs."
            )

    def _may_idle(self, agent: AgentId) -> bool:
        bought = self._snapshot.agents[agent].instance_id is not None
        return bought and agent in self._snapshot.rooms and agent not in self._snapshot.occupancy

    def _shares(self, allocation: Allocation) -> Iterator[str]:
        """What its job and its groups hold of all held slots."""
        shares = self._snapshot.shares
        if shares is None:
            return
        member = self._snapshot.member(allocation)
        whose = ("workspace", "user")
        for depth, name in enumerate(member.parents):
            mine, around = shares.held(member.path[: depth + 1]), shares.held(member.path[:depth])
            of = "the pool's" if depth == 0 else f"that {whose[depth - 1]}'s"
            used = shares.used.get(member.path[: depth + 1])
            past = f", and is charged {used:g} for the past" if used else ""
            yield f"Its {whose[depth]} {name} holds {mine} of {of} {around} slot(s) in use{past}."
        mine = shares.held(member.path)
        yield (
            f"Its job holds {mine} slot(s) at weight {member.weight:g}; "
            "free slots go to the job that holds the least for its weight."
        )
        if not member.parents:
            holders = sum(job.held > 0 for job in shares.jobs())
            yield f"{holders} job(s) hold {shares.held(())} slot(s) together."

    def _shut_agents(self) -> Iterator[str]:
        shut = [(agent.id, why) for agent in self._snapshot.agents.values() if (why := shut_because(agent)) is not None]
        for agent, why in shut[:NAMES_SHOWN]:
            yield f"Agent {agent} accepts no new work: it {why}."
        if len(shut) > NAMES_SHOWN:
            yield f"{len(shut) - NAMES_SHOWN} more agents accept no new work."
        parts = [(id_, off) for id_, agent in self._snapshot.agents.items() if (off := closed_slots(agent))]
        for id_, off in parts[:NAMES_SHOWN]:
            yield f"{_slots(off).capitalize()} of agent {id_} {_take(len(off))} no new work."
        if len(parts) > NAMES_SHOWN:
            yield f"{len(parts) - NAMES_SHOWN} more agents have slots that accept no new work."


def shut_because(agent: Agent) -> str | None:
    """Why the agent takes no new work; None when it does."""
    if not agent.connected:
        return "is out of contact"
    if agent.notice is not None:
        return f"has a notice ({agent.notice.kind})"
    if not agent.enabled:
        return "is disabled"
    return "is draining" if agent.draining else None


def closed_slots(agent: Agent) -> list[int]:
    """The slots that take no new work, whether or not the agent does."""
    return [s.index for s in agent.slots if not s.enabled or s.draining]


def why_closed(agent: Agent) -> str:
    """The parts of the agent that take no new work, as a predicate."""
    because, off = shut_because(agent), closed_slots(agent)
    closed = f"{_slots(off)} {_take(len(off))} no work" if off else ""
    if because is None:
        return f"has disabled or draining slots ({', '.join(map(str, off))})"
    return f"{because}, and its {closed}" if off else because


def _slots(listed: Sequence[int]) -> str:
    return f"slot{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"


def _take(many: int) -> str:
    return "take" if many > 1 else "takes"


def needed(allocation: Allocation) -> str:
    if allocation.slots_needed == 0:
        return "an auxiliary place"
    return f"{allocation.slots_needed} slot(s){' on one machine' if allocation.single_node else ''}"


def names(listed: Sequence[str]) -> str:
    """A list of names, cut when it is long."""
    shown = ", ".join(listed[:NAMES_SHOWN])
    return f"{shown} and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else shown or "nothing"


def _agents(hold: Hold) -> str:
    return names([agent for agent, _ in hold.agents])


def _kept(hold: Hold) -> str:
    return f"{_agents(hold)} {'are' if len(hold.agents) > 1 else 'is'} kept"
