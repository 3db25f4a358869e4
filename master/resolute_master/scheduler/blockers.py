"""What blocks a pending allocation: a minimal set of obstacles without which it starts, verified by the scheduler.

Obstacles are running allocations; earlier pending ones that hold or take the slots first; the cap of its own job; agents that take
no work; agents that are blocked for it. If the scheduler holds agents for it, the work on those is tried first. Otherwise the set
is built in this order: what an empty pool would still lack; the fewest running allocations where it would fit; what else precedes
it then. Finally every unnecessary obstacle is removed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.fitting import divide
from resolute_master.scheduler.outcome import Outcome
from resolute_master.scheduler.rehearsal import PassesSpent, Rehearsal
from resolute_master.scheduler.snapshot import PoolSnapshot, waits

ROUNDS = 8
"""Number of times that the allocations which take freed slots first are added to the set. If the target still does not start, or
they are many, all earlier pending allocations count as one obstacle."""

LARGEST_TRIED = 32
"""A larger set is not minimised: each attempt is a pass."""

AGENTS_TRIED = 8
"""Number of agents without work that are tried one by one."""

_MANY = 100
"""For more changes the snapshot is built again, which is cheaper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockers:
    """Obstacles without which it would start at once; `smallest` if none of them can be left out."""

    running: tuple[AllocationId, ...] = ()
    ahead: tuple[AllocationId, ...] = ()
    ahead_together: bool = False
    cap: bool = False
    agents: tuple[AgentId, ...] = ()
    """Agents that accept no work."""
    blocked: bool = False
    """Whether agents that are blocked for it are among the obstacles."""
    smallest: bool = False


def without(snapshot: PoolSnapshot, target: AllocationId, blockers: Blockers) -> PoolSnapshot:
    """The pool without the blockers."""
    mine = snapshot.allocations[target]
    gone = {*blockers.running, *blockers.ahead}
    if len(gone) > _MANY:
        snapshot = snapshot.keeping(lambda allocation: allocation.id not in gone)
    else:
        for id_ in sorted(gone):
            snapshot = snapshot.without_allocation(id_)
    if blockers.cap and (job := snapshot.jobs.get(mine.job_id)) is not None:
        snapshot = snapshot.with_job(replace(job, max_slots=None))
    for agent in blockers.agents:
        snapshot = snapshot.with_agent(opened(snapshot.agents[agent]))
    if blockers.blocked:
        snapshot = snapshot.with_allocation(replace(mine, blocked_agents=()))
    return snapshot


def opened(agent: Agent) -> Agent:
    """The same agent, in contact, with all its slots enabled."""
    slots = tuple(replace(slot, enabled=True, draining=False) for slot in agent.slots)
    return replace(switched_on(agent), slots=slots)


def switched_on(agent: Agent) -> Agent:
    """The same agent, in contact, accepting work on its enabled slots."""
    return replace(agent, enabled=True, draining=False, disconnected_at=None, notice=None)


def openings(shut: Sequence[Agent]) -> list[tuple[AgentId, ...]]:
    """Sets of agents to try to open: all of them first, then those of each size, then single ones. An agent with all slots enabled
    may be too large to combine with others, so more is not always better."""
    sizes = sorted({len(agent.slots) for agent in shut})
    tries = [tuple(agent.id for agent in shut)] if shut else []
    tries += [tuple(agent.id for agent in shut if len(agent.slots) == size) for size in sizes]
    tries += [(agent.id,) for agent in shut[:AGENTS_TRIED]]
    return list(dict.fromkeys(tries))


def find_blockers(
    snapshot: PoolSnapshot,
    target: AllocationId,
    rehearsal: Rehearsal,
    *,
    capped: bool = False,
    kept: Sequence[AgentId] = (),
) -> Blockers | None:
    """The blockers of `target`; None if it does not start even in an empty pool. `capped`: its job's cap blocks it. `kept`: the
    agents that the scheduler holds for it.

    Raises `PassesSpent` when the passes are spent before any set is found.
    """
    search = _Search(snapshot, target, rehearsal)
    there = search.on_kept(kept)
    fewest = next(iter(_emptied(snapshot, snapshot.allocations[target])), None)
    if there is not None and (fewest is None or len(there.running) <= len(fewest)):
        return there
    found = search.find(capped=capped)
    return min((each for each in (found, there) if each is not None), key=_count, default=None)


class _Search:
    def __init__(self, snapshot: PoolSnapshot, target: AllocationId, rehearsal: Rehearsal) -> None:
        self._snapshot = snapshot
        self._target = target
        self._rehearsal = rehearsal
        self._without_ahead: tuple[tuple[AllocationId, ...], PoolSnapshot] = ((), snapshot)
        """The last long list of earlier pending allocations, and the pool without them."""

    def on_kept(self, agents: Sequence[AgentId]) -> Blockers | None:
        """The work on the agents that are held for it, if that alone blocks it."""
        there = {id_ for agent in agents for id_, each in self._snapshot.occupancy.get(agent) or () if each.slots}
        found = Blockers(running=tuple(sorted(there)))
        return self._smallest(found) if there and self._starts(found) else None

    def find(self, *, capped: bool) -> Blockers | None:
        found = self._lacking_when_empty(Blockers(cap=capped))
        if found is None:
            return None
        found = self._with_running(found)
        if found is None:
            return None
        return self._smallest(self._with_ahead(found))

    def _starts(self, blockers: Blockers) -> bool:
        return self._rehearsal.starts(self._without(blockers), self._target)

    def _without(self, blockers: Blockers) -> PoolSnapshot:
        if len(blockers.ahead) <= _MANY:
            return without(self._snapshot, self._target, blockers)
        if self._without_ahead[0] != blockers.ahead:
            alone = Blockers(ahead=blockers.ahead)
            self._without_ahead = (blockers.ahead, without(self._snapshot, self._target, alone))
        return without(self._without_ahead[1], self._target, replace(blockers, ahead=()))

    # -- one kind of obstacle after the other ------------------------------------------------------------------

    def _lacking_when_empty(self, known: Blockers) -> Blockers | None:
        empty = self._snapshot.keeping(lambda allocation: allocation.id == self._target)
        shut = openings([agent for agent in self._snapshot.agents.values() if opened(agent) != agent])
        blocked = bool(self._snapshot.allocations[self._target].blocked_agents)
        tries = [known]
        tries += [replace(known, blocked=True)] if blocked else []
        tries += [replace(known, agents=ids) for ids in shut]
        tries += [replace(known, agents=ids, blocked=True) for ids in shut if blocked]
        for each in tries:
            if self._rehearsal.starts(without(empty, self._target, each), self._target):
                return each
        return None

    def _with_running(self, known: Blockers) -> Blockers | None:
        """With the fewest running allocations where it would fit, as if nothing else were pending."""
        alone = self._snapshot.keeping(lambda allocation: allocation.id == self._target or not waits(allocation))
        opened_up = without(alone, self._target, known)
        if self._rehearsal.starts(opened_up, self._target):
            return known
        for ids in _emptied(opened_up, opened_up.allocations[self._target]):
            found = replace(known, running=tuple(sorted(ids)))
            if self._rehearsal.starts(without(alone, self._target, found), self._target):
                return found
        return None

    def _with_ahead(self, known: Blockers) -> Blockers:
        """With pending allocations that would take the slots first."""
        found, snapshot = known, self._without(known)
        for _ in range(ROUNDS):
            outcome = self._rehearsal.run(snapshot)
            if any(placement.allocation == self._target for placement in outcome.plan.place):
                return found
            takers = _takers(outcome, self._target)
            found = replace(found, ahead=tuple(sorted({*found.ahead, *takers})))
            if not takers or len(found.ahead) > LARGEST_TRIED:
                break
            for id_ in sorted(takers):
                snapshot = snapshot.without_allocation(id_)
        for ahead in self._all_ahead():
            found = replace(known, ahead=ahead, ahead_together=True)
            if self._starts(found):
                return found
        raise AssertionError(f"{self._target} starts when no other job waits, and does not start then")

    def _all_ahead(self) -> Iterator[tuple[AllocationId, ...]]:
        waiting = [allocation.id for allocation in self._snapshot.pending()]
        if self._snapshot.shares is None:
            yield tuple(sorted(waiting[: waiting.index(self._target)]))
        yield tuple(sorted(id_ for id_ in waiting if id_ != self._target))

    # -- minimising --------------------------------------------------------------------------------------------

    def _smallest(self, found: Blockers) -> Blockers:
        """Without unnecessary obstacles: half of them at once, then one by one until each was tried."""
        parts = list(parts_of(found))
        if len(parts) > LARGEST_TRIED:
            return found
        at, step, needed = 0, max(len(parts) // 2, 1), 0
        try:
            while needed < len(parts):
                fewer = parts[:at] + parts[at + step :]
                if self._starts(_together(fewer)):
                    parts, needed = fewer, 0
                else:
                    at, needed = at + step, needed + (step == 1)
                if at >= len(parts):
                    at, step = 0, 1
        except PassesSpent:
            return _together(parts)
        return replace(_together(parts), smallest=True)


def parts_of(blockers: Blockers) -> tuple[Blockers, ...]:
    """Each single obstacle of a set."""
    return (
        *([Blockers(cap=True)] if blockers.cap else ()),
        *([Blockers(blocked=True)] if blockers.blocked else ()),
        *([Blockers(ahead=blockers.ahead, ahead_together=True)] if blockers.ahead_together else ()),
        *(Blockers(ahead=(id_,)) for id_ in blockers.ahead if not blockers.ahead_together),
        *(Blockers(agents=(id_,)) for id_ in blockers.agents),
        *(Blockers(running=(id_,)) for id_ in blockers.running),
    )


def _count(blockers: Blockers) -> int:
    return len(blockers.running) + len(blockers.ahead) + len(blockers.agents) + blockers.cap + blockers.blocked


def _together(parts: Iterable[Blockers]) -> Blockers:
    parts = list(parts)
    return Blockers(
        running=tuple(id_ for part in parts for id_ in part.running),
        ahead=tuple(id_ for part in parts for id_ in part.ahead),
        ahead_together=any(part.ahead_together for part in parts),
        cap=any(part.cap for part in parts),
        agents=tuple(id_ for part in parts for id_ in part.agents),
        blocked=any(part.blocked for part in parts),
    )


def _takers(outcome: Outcome, target: AllocationId) -> set[AllocationId]:
    got = {placement.allocation for placement in outcome.plan.place}
    return (got | {hold.allocation for hold in outcome.plan.holds}) - {target}


# ----------------------------------------------------------------------------------------------- running obstacles


def _emptied(snapshot: PoolSnapshot, allocation: Allocation) -> list[set[AllocationId]]:
    """Sets of running allocations whose slots, with the free ones, hold this one: the smallest first."""
    rooms = [room for room in snapshot.rooms.values() if room.agent not in allocation.blocked_agents]
    occupied = {room.agent: _by_size(snapshot, room.agent, aux=allocation.slots_needed == 0) for room in rooms}
    found: list[set[AllocationId]] = []
    if allocation.slots_needed == 0:
        limit = snapshot.policy.max_aux_containers_per_agent
        found = [set(_named(occupied[r.agent][: max(r.aux - limit + 1, 0)])) for r in rooms]
    else:
        for room in rooms:
            missing, gone = allocation.slots_needed - len(room.free), set[AllocationId]()
            for id_, slots in occupied[room.agent]:
                if missing > 0:
                    gone.add(id_)
                    missing -= slots
            if missing <= 0:
                found.append(gone)
        if not allocation.single_node:
            found.extend(
                _whole(snapshot, allocation, {r.agent: (r.size, set(_named(occupied[r.agent]))) for r in rooms})
            )
    found.sort(key=lambda ids: (len(ids), sorted(ids)))
    return found[:3]


def _by_size(snapshot: PoolSnapshot, agent: AgentId, *, aux: bool) -> list[tuple[AllocationId, int]]:
    """The allocations on the agent, by the slots that they would free, most first."""
    usable = {slot.index for slot in snapshot.agents[agent].slots if slot.enabled and not slot.draining}
    there = [
        (id_, occupant.aux if aux else len(usable.intersection(occupant.slots)))
        for id_, occupant in snapshot.occupancy.get(agent) or ()
    ]
    return sorted(((id_, slots) for id_, slots in there if slots), key=lambda each: (-each[1], each[0]))


def _named(occupants: Sequence[tuple[AllocationId, int]]) -> list[AllocationId]:
    return [id_ for id_, _ in occupants]


def _whole(
    snapshot: PoolSnapshot, allocation: Allocation, rooms: dict[AgentId, tuple[int, set[AllocationId]]]
) -> Iterator[set[AllocationId]]:
    """For whole agents of each size that divides the work, or of several sizes: those with the fewest allocations."""
    slots, mixed = allocation.slots_needed, snapshot.policy.heterogeneous_fits
    by_size: dict[int, list[AgentId]] = {}
    for agent in sorted(rooms, key=lambda id_: (len(rooms[id_][1]), id_)):
        if 0 < rooms[agent][0] < slots:
            by_size.setdefault(rooms[agent][0], []).append(agent)
    counts = {size: len(agents) for size, agents in by_size.items()}
    choices = [{size: counts[size]} for size in counts] + ([counts] if mixed else [])
    for choice in choices:
        parts = divide(slots, choice, mixed=mixed)
        if parts is not None:
            yield {id_ for size, count in parts.items() for agent in by_size[size][:count] for id_ in rooms[agent][1]}
