"""Why a job is where it is, in words, computed when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, JobId
from resolute_master.scheduler.fitting import divide
from resolute_master.scheduler.job_states import JobState, job_states
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.plan import Hold
from resolute_master.scheduler.schedule import run
from resolute_master.scheduler.snapshot import PoolSnapshot, waits

_NAMES_SHOWN = 8
"""Longer lists of names are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`reason` is one sentence, `details` are the facts behind it."""

    state: JobState
    reason: str
    details: tuple[str, ...] = ()


def explain(snapshot: PoolSnapshot, job: JobId) -> Explanation:
    """What the job waits for, or where it runs. Runs the scheduler on the snapshot, so that the answer is its own."""
    standing = job_states(snapshot).get(job)
    if standing is None:
        return Explanation(state=JobState.IDLE, reason="Nothing of this job waits or runs in this pool.")
    mine = sorted((snapshot.allocations[a] for a in snapshot.job_allocations[job]), key=snapshot.queue_key)
    waiting = [a for a in mine if waits(a)]
    running = [a for a in mine if not waits(a)]
    if not waiting:
        first, *others = [_runs(a) for a in running]
        return Explanation(state=standing.state, reason=first, details=tuple(others[:_NAMES_SHOWN]))
    words = _Words(snapshot, run(snapshot))
    details = [*words.queue(standing.jobs_ahead), *words.facts(waiting[0])]
    if len(waiting) > 1:
        details.append(f"{len(waiting)} allocations of the job wait; this is about the first, {waiting[0].id}.")
    details.extend(_runs(a) for a in running[:_NAMES_SHOWN])
    return Explanation(state=standing.state, reason=words.reason(waiting[0]), details=tuple(details))


def _runs(allocation: Allocation) -> str:
    places = ", ".join(
        f"{c.agent} (slots {', '.join(map(str, c.slots))})" if c.slots else c.agent
        for c in sorted(allocation.containers, key=lambda c: c.rank)
        if not c.ended
    )
    if allocation.preempt is not None:
        return f"{allocation.id} was asked to save and end: {allocation.preempt.reason}."
    return f"{allocation.id} {'is ending' if allocation.leaving else 'runs'} on {places or 'no agent'}."


class _Words:
    """Sentences about one snapshot and what the pass over it found."""

    def __init__(self, snapshot: PoolSnapshot, outcome: Outcome) -> None:
        self._snapshot = snapshot
        self._outcome = outcome

    # -- the sentence ------------------------------------------------------------------------------------------

    def reason(self, allocation: Allocation) -> str:
        for placement in self._outcome.plan.place:
            if placement.allocation == allocation.id:
                return f"{allocation.id} starts now on {_names(placement.agents)}."
        verdict, need = self._verdict(allocation), _need(allocation)
        hold = next((h for h in self._outcome.plan.holds if h.allocation == allocation.id), None)
        match verdict:
            case Verdict.CAPPED:
                return self._capped(allocation)
            case Verdict.VACATING | Verdict.PREEMPTING if hold is not None:
                return f"It waits for {need} on {_agents(hold)}: {_names(self._leavers(hold))} must leave first."
            case Verdict.COMING:
                return f"It waits for {need} of machines that are on their way."
            case Verdict.LAUNCHABLE:
                return f"It waits for {need} of machines that the pool may ask for."
            case Verdict.RESERVED if hold is not None:
                return f"It waits for {need}: {_kept(hold)} for it until {hold.kind.until}."
            case _:
                return self._waits(allocation)

    def _verdict(self, allocation: Allocation) -> Verdict:
        return self._outcome.verdict(self._snapshot, allocation)

    def _capped(self, allocation: Allocation) -> str:
        job = self._snapshot.jobs[allocation.job_id]
        held = self._snapshot.job_slots.get(job.id) or 0
        return (
            f"It waits for its own job: max_slots allows {job.max_slots}, {held} are in use, and it needs "
            f"{allocation.slots_needed}."
        )

    def _waits(self, allocation: Allocation) -> str:
        snapshot, need = self._snapshot, _need(allocation)
        if not len(snapshot.rooms) and not snapshot.supply.machines:
            return f"It waits for {need}: no agent of the pool takes work, and {self._no_launch()}."
        if (misfit := self._misfit(allocation)) is not None:
            return misfit
        usable = [agent for agent in snapshot.rooms if agent not in allocation.blocked_agents]
        if not usable:
            return f"It waits for {need}: every agent that takes work is blocked for it ({_names(allocation.blocked_agents)})."
        if allocation.slots_needed == 0:
            return (
                f"It waits for an auxiliary place: every agent has its {snapshot.policy.max_aux_containers_per_agent}."
            )
        return f"It waits for {need}: what is free does not hold it, or is kept for others."

    def _no_launch(self) -> str:
        if self._snapshot.policy.scaling is None:
            return "the pool launches no machines"
        return f"no machine can be had ({self._snapshot.supply.reason or 'the pool may not ask for more'})"

    def _misfit(self, allocation: Allocation) -> str | None:
        """Said when even an empty pool could not hold it."""
        slots, supply, scaling = allocation.slots_needed, self._snapshot.supply, self._snapshot.policy.scaling
        agents = dict(self._snapshot.sizes.items())
        for machine in supply.machines:
            agents[machine.slots] = agents.get(machine.slots, 0) + 1
        for offer in scaling.offers if scaling is not None else ():
            agents[offer.slots] = max(agents.get(offer.slots, 0), scaling.max_instances if scaling else 0)
        agents = {size: count for size, count in agents.items() if size > 0}
        largest = max(agents, default=0)
        if slots <= largest:
            return None
        if allocation.single_node:
            return f"It can never start here: it needs {slots} slots on one machine, and the largest has {largest}."
        if divide(slots, agents, mixed=self._snapshot.policy.heterogeneous_fits) is not None:
            return None
        sizes = ", ".join(f"{count} of {size}" for size, count in sorted(agents.items(), reverse=True)) or "none"
        return (
            f"It can never start here: it needs {slots} slots on whole machines of one size, and the pool's machines by "
            f"slots are: {sizes}."
        )

    def _leavers(self, hold: Hold) -> list[AllocationId]:
        victims = {p.allocation for p in self._outcome.plan.preempt}
        found = set[AllocationId]()
        for agent, _ in hold.agents:
            for id_, occupant in self._snapshot.occupancy.get(agent) or ():
                if occupant.slots and (occupant.leaving or id_ in victims):
                    found.add(id_)
        return sorted(found)

    # -- the facts ---------------------------------------------------------------------------------------------

    def queue(self, ahead: int) -> Iterator[str]:
        yield f"{ahead} job(s) of the pool come before it." if ahead else "It is the first job of the pool."

    def facts(self, allocation: Allocation) -> Iterator[str]:
        snapshot = self._snapshot
        if snapshot.shares is not None:
            member = snapshot.member(allocation)
            held = snapshot.shares.held.get(member.path) or 0
            yield f"Its job holds {held} slot(s) at weight {member.weight:g}; free slots go to who holds least for its weight."
        rooms = list(snapshot.rooms.values())
        free, total = sum(len(room.free) for room in rooms), sum(room.size for room in rooms)
        most = max((len(room.free) for room in rooms), default=0)
        yield f"{free} of {total} slots are free, at most {most} of them on one agent."
        for hold in self._outcome.plan.holds[:_NAMES_SHOWN]:
            if hold.allocation != allocation.id:
                yield f"{hold.words}."
        yield from self._shut_agents()
        if allocation.blocked_agents:
            yield f"Agents that are blocked for it: {_names(allocation.blocked_agents)}."
        for machine in snapshot.supply.machines[:_NAMES_SHOWN]:
            when = f", expected at {machine.expected_at:%H:%M:%S} UTC" if machine.expected_at else ""
            whose = ", launched for it" if allocation.id in machine.gangs else ""
            yield f"Machine {machine.instance} with {machine.slots} slot(s) is on its way{when}{whose}."
        if snapshot.supply.room and snapshot.supply.offers:
            yield f"The pool may ask for {snapshot.supply.room} more machine(s)."
        elif snapshot.policy.scaling is not None:
            yield f"The pool can get no more machines now: {snapshot.supply.reason or 'it is at its maximum'}."

    def _shut_agents(self) -> Iterator[str]:
        for agent in self._snapshot.agents.values():
            if (why := _shut(agent)) is not None:
                yield f"Agent {agent.id} takes no new work: it {why}."


def _shut(agent: Agent) -> str | None:
    if not agent.connected:
        return "is out of contact"
    if agent.notice is not None:
        return f"is going away ({agent.notice.kind})"
    if not agent.enabled:
        return "is disabled"
    return "is draining" if agent.draining else None


def _need(allocation: Allocation) -> str:
    if allocation.slots_needed == 0:
        return "an auxiliary place"
    return f"{allocation.slots_needed} slot(s){' on one machine' if allocation.single_node else ''}"


def _agents(hold: Hold) -> str:
    return _names([agent for agent, _ in hold.agents])


def _kept(hold: Hold) -> str:
    return f"{_agents(hold)} {'are' if len(hold.agents) > 1 else 'is'} kept"


def _names(names: list[AgentId] | tuple[AgentId, ...] | list[AllocationId]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown or "nothing"
