"""The choice of victims for a claim.

The scheduler's rule (`Precedence`) says which allocations must yield; those that have run for less than the pool's `min_runtime`
never do. A set of victims is chosen as a whole, only if it frees enough slots, and each victim in it is needed. Over all agents,
the set whose most important victim is the least important wins, then the one that wastes the least time. The waste of a victim is
its slots times the work that it must repeat, the time since its last checkpoint and that of a start, plus a fixed time for each
earlier preemption (`Allocation.counted_since`), multiplied by the likelihood that its search needs it (`Worth.likelihood`). Then
the smaller set wins. Whether preemption pays at all is judged by the work that is really lost.

If each victim is judged by itself (`Precedence.independent`), the set on one agent is the cheapest possible, and so is the agent.
If the loss of one victim may protect another, the cheapest are taken one by one. The agents of a gang are emptied one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from operator import itemgetter
from typing import NamedTuple, Protocol

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.fitting import Refuses, Rooms, divide
from resolute_master.scheduler.snapshot import PoolSnapshot

Group = tuple[str, ...]
"""A path of groups in a fair-share pool; see `shares`."""

Cost = tuple[tuple[float, ...], float, float]
"""Importance of the most important victim, slot-seconds wasted, number of victims."""

_Candidate = tuple[Allocation, int]
"""A possible victim, with its usable slots."""

_Sum = tuple[float, int, tuple[int, ...]]
"""Slot-seconds that some candidates waste, their count, and their numbers."""

_WITHOUT_HISTORY = "without history"
"""Kind of a search that ignores earlier preemptions."""

_NOTHING: Cost = ((float("-inf"),), 0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The need of a pending allocation, and the agents that it refuses."""

    allocation: Allocation
    slots: int
    single_node: bool
    where: object
    """As of its `Shape`."""
    refuses: Refuses


class Level(NamedTuple):
    """Equally important victims for one claim; `cheapest_first`: they are in the order of their waste."""

    importance: tuple[float, ...]
    members: Iterator[Allocation]
    cheapest_first: bool


class Precedence(Protocol):
    """The order of importance of allocations, during one pass."""

    independent: bool
    """Whether an allocation must yield does not depend on the other victims."""

    def levels(self, claim: Claim) -> Iterator[Level]:
        """All preemptible allocations that, alone, would have to yield; the least important first."""
        ...

    def any_lesser(self, claim: Claim) -> bool:
        """False only if `levels` would be empty; may be true although they are empty."""
        ...

    def found_no_victims(self, claim: Claim) -> None:
        """The possible victims do not free enough slots. This holds until something is preempted or placed."""
        ...

    def groups(self, allocation: Allocation) -> Iterable[Group]:
        """The groups whose losses `yields` needs."""
        ...

    def yields(self, allocation: Allocation, claim: Claim, lost: Mapping[Group, int]) -> bool:
        """Whether it must yield to the claim, given the slots that its groups already lose to the claim."""
        ...

    def importance(self, allocation: Allocation) -> tuple[float, ...]:
        """The greater, the later it is preempted."""
        ...

    def last_resort(self, allocation: Allocation) -> float:
        """The greater, the later it is preempted among equally important and equally cheap victims."""
        ...

    def left(self, victims: Iterable[Allocation]) -> None:
        """This pass preempts them."""
        ...

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """Why, as the rest of a sentence about the claim's allocation."""
        ...


class _Victims:
    """The victims for one claim, and the losses of their groups."""

    def __init__(self, precedence: Precedence) -> None:
        self._precedence = precedence
        self.allocations: dict[AllocationId, Allocation] = {}
        self.lost: dict[Group, int] = {}

    def add(self, allocation: Allocation) -> None:
        self.allocations[allocation.id] = allocation
        self._count(allocation, 1)

    def discard(self, allocation: Allocation) -> None:
        del self.allocations[allocation.id]
        self._count(allocation, -1)

    def _count(self, allocation: Allocation, sign: int) -> None:
        for group in self._precedence.groups(allocation):
            self.lost[group] = self.lost.get(group, 0) + sign * allocation.slots_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The victims, and the slots that are then held on each agent."""

    victims: tuple[Allocation, ...]
    keep: tuple[tuple[AgentId, int], ...]


COMPARED = 16
"""Size of a batch of equally important candidates. If they are not in order of cost, only one batch is compared, from the last in
their order: so the cost of a decision does not grow with the pool."""


class _Candidates:
    """Agents by the cost of freeing slots on them, read as needed: those with the least important work first.

    The known cost of an agent is a lower bound at first, then its cost; it is computed again when the agent is reached, because
    the pass continues meanwhile.
    """

    def __init__(
        self,
        levels: Iterator[Level],
        weight: Callable[[Allocation], float],
        enough: Callable[[AgentId, int], bool],
    ) -> None:
        """`enough`: whether an agent is a candidate if the allocations read so far hold this number of its slots."""
        self._levels = levels
        self._level = Level(_NOTHING[0], iter(()), cheapest_first=False)
        """The level that is being read."""
        self._next: Allocation | None = None
        """Its first unread member."""
        self._read_up_to = _NOTHING
        """No unread member of this level or the earlier ones adds a cheaper agent."""
        self._weight = weight
        self._enough = enough
        self._slots: dict[AgentId, int] = {}
        """Slots of the allocations read so far, by agent."""
        self._heap: list[tuple[Cost, AgentId]] = []
        self._listed: set[AgentId] = set()
        """The agents in the heap."""

    def pop(
        self, cost_of: Callable[[AgentId], Cost | None], most: tuple[float, ...] = (inf,)
    ) -> tuple[Cost, AgentId] | None:
        """The cheapest agent, removed; agents for which `cost_of` is None are dropped. None: every remaining agent has victims more
        important than `most`."""
        while True:
            while (not self._heap or self._heap[0][0] > self._read_up_to) and self._read_up_to[0] <= most:
                if not self._read_more():
                    break
            if not self._heap or self._heap[0][0][0] > most:
                return None
            known, agent = heappop(self._heap)
            cost = cost_of(agent)
            if cost is None:
                self._listed.discard(agent)
            elif cost <= known:
                self._listed.discard(agent)
                return cost, agent
            else:
                heappush(self._heap, (cost, agent))

    def push(self, cost: Cost, agent: AgentId) -> None:
        self._listed.add(agent)
        heappush(self._heap, (cost, agent))

    def _read_more(self) -> bool:
        """Read a batch of the level, or start the next one."""
        several = list(islice(self._ahead(), COMPARED))
        if not several:
            level = next(self._levels, None)
            if level is None:
                return False
            self._level, self._next = level, next(level.members, None)
            return True
        importance = max(self._read_up_to[0], self._level.importance)
        for lost, allocation in sorted(((self._weight(each), each) for each in several), key=itemgetter(0)):
            self._read(allocation, (importance, lost, 1))
        more = self._next if self._level.cheapest_first else None
        self._read_up_to = (importance, inf if more is None else self._weight(more), inf)
        return True

    def _ahead(self) -> Iterator[Allocation]:
        """The unread members of the level, one read ahead."""
        while (allocation := self._next) is not None:
            self._next = next(self._level.members, None)
            yield allocation

    def _read(self, allocation: Allocation, least: Cost) -> None:
        for container in allocation.containers:
            if not container.ended:
                agent = container.agent
                self._slots[agent] = self._slots.get(agent, 0) + len(container.slots)
                if agent not in self._listed and self._enough(agent, self._slots[agent]):
                    # Without this one there were too few slots: it is a victim there, or one with more waste.
                    self.push(least, agent)


class Evictions:
    """Victims of one pass. No allocation is chosen twice."""

    def __init__(self, snapshot: PoolSnapshot, rooms: Rooms, precedence: Precedence) -> None:
        self._snapshot = snapshot
        self._rooms = rooms
        self._precedence = precedence
        self.ripe_at: datetime | None = None
        """When the first allocation that `min_runtime` protects may be preempted."""
        self._without_history = False
        """Earlier preemptions are ignored."""
        self._evicted: dict[AllocationId, Allocation] = {}
        self._candidates: dict[object, _Candidates] = {}
        """Agents to free slots on, per kind of claim; agents to empty, per kind and size."""
        self._usable_slots: dict[AgentId, frozenset[int]] = {}
        """By agent, as far as read."""

    def find(self, claim: Claim, kind: object, pays: Callable[[int, float], bool] | None = None) -> Eviction | None:
        """Free slots for the claim, or change nothing. Claims of one `kind` have the same need, the most important comes first.
        `pays`: whether to preempt at all, given the slots of the victims and the slot-seconds that they lose."""
        if not self._precedence.any_lesser(claim):
            return None
        eviction = self._found(claim, kind)
        if eviction is None:
            self._precedence.found_no_victims(claim)
            return None
        if pays is not None and not self._pays(eviction, pays):
            # Former victims are preferred less, but no claim waits longer because of that.
            self._without_history = True
            eviction = self._found(claim, (kind, _WITHOUT_HISTORY))
            self._without_history = False
            if eviction is None or not self._pays(eviction, pays):
                return None
        self._leave(eviction)
        return eviction

    def find_whole(self, claim: Claim, kind: object, size: int, count: int) -> Eviction | None:
        """Empty `count` agents of the size, some of which may be idle, or change nothing: the claim has the rest elsewhere."""
        agents, victims = self._empty(claim, kind, size, count)
        if len(agents) < count:
            return None
        eviction = self._whole(agents, victims)
        self._leave(eviction)
        return eviction

    def _found(self, claim: Claim, kind: object) -> Eviction | None:
        eviction = self._on_one(claim, kind)
        if eviction is None and not claim.single_node and claim.slots > 1:
            eviction = self._on_whole(claim, kind)
        return eviction

    def _pays(self, eviction: Eviction, pays: Callable[[int, float], bool]) -> bool:
        held = sum(len(victim.held_slots) for victim in eviction.victims)
        return pays(held, sum(self._lost_work(victim) for victim in eviction.victims))

    def _candidates_of(self, claim: Claim, kind: object, slots: int) -> _Candidates:
        """Agents on which `slots` slots may be freed."""
        found = self._candidates.get(kind)
        if found is None:
            # No reference to `self`, which holds them: only garbage collection would free the cycle.
            rooms, now, without_history = self._rooms, self._snapshot.now, self._without_history

            def weight(allocation: Allocation) -> float:
                return _weight(allocation, now, without_history=without_history)

            def enough(agent: AgentId, used: int) -> bool:
                return rooms.has(agent) and rooms.state(agent).eventually_free + used >= slots

            found = self._candidates[kind] = _Candidates(self._precedence.levels(claim), weight, enough)
        return found

    # -- one agent ---------------------------------------------------------------------------------------------

    def _on_one(self, claim: Claim, kind: object) -> Eviction | None:
        def cost_of(agent: AgentId) -> Cost | None:
            usable = agent in self._snapshot.rooms and not claim.refuses(agent)
            victims = self._victims(claim, agent, claim.slots) if usable else None
            return None if victims is None else self._cost(victims)

        candidates = self._candidates_of(claim, kind, claim.slots)
        found = candidates.pop(cost_of)
        if found is None:
            return None
        cost, agent = found
        candidates.push(cost, agent)  # it may hold another claim
        victims = self._victims(claim, agent, claim.slots) or ()
        return Eviction(victims=tuple(victims), keep=((agent, claim.slots),))

    def _victims(self, claim: Claim, agent: AgentId, slots: int) -> list[Allocation] | None:
        """The fewest and least important victims that give the agent `slots` free slots."""
        state = self._rooms.state(agent)
        missing = slots - state.eventually_free
        if slots > state.size or missing <= 0:
            return None
        staying = self._staying(agent)
        if not any(self._precedence.yields(each, claim, {}) for each, _ in staying):
            return None  # the first victim would have to yield alone
        candidates = sorted(staying, key=lambda each: self._cheapness(each[0]))
        choose = self._cheapest if self._precedence.independent else self._one_by_one
        return choose(claim, candidates, missing)

    def _cheapest(self, claim: Claim, candidates: list[_Candidate], missing: int) -> list[Allocation] | None:
        """The least important that suffice; of those the set that wastes least, then the smallest, then the first in order."""
        ripe_at, no_others = self.ripe_at, _Victims(self._precedence)
        best: dict[int, _Sum] = {0: (0.0, 0, ())}
        """By the number of their slots, up to the missing number."""
        importance = _NOTHING[0]
        for number, (allocation, slots) in enumerate(candidates):
            if missing in best and self._precedence.importance(allocation) != importance:
                break
            if not self._may_evict(claim, allocation, no_others):
                continue
            importance, lost = self._precedence.importance(allocation), self._weight(allocation)
            for there, (wasted, count, numbers) in sorted(best.items(), reverse=True):
                sum_: _Sum = (wasted + lost, count + 1, (*numbers, number))
                covered = min(there + slots, missing)
                best[covered] = min(sum_, best.get(covered, sum_))
        if missing not in best:
            return None
        self.ripe_at = ripe_at  # the claim does not wait for protected allocations
        return [candidates[number][0] for number in best[missing][2]]

    def _one_by_one(self, claim: Claim, candidates: list[_Candidate], missing: int) -> list[Allocation] | None:
        chosen: list[_Candidate] = []
        chosen_victims = _Victims(self._precedence)
        for candidate in candidates:
            if missing > 0 and self._may_evict(claim, candidate[0], chosen_victims):
                chosen.append(candidate)
                chosen_victims.add(candidate[0])
                missing -= candidate[1]
        if missing > 0:
            return None
        # Later victims may make earlier ones unneeded: drop the most important unneeded ones.
        for candidate in reversed(chosen[:]):
            if missing + candidate[1] <= 0:
                chosen.remove(candidate)
                missing += candidate[1]
        return [allocation for allocation, _ in chosen]

    # -- whole agents ------------------------------------------------------------------------------------------

    def _on_whole(self, claim: Claim, kind: object) -> Eviction | None:
        mixed = self._snapshot.policy.heterogeneous_fits
        found: list[tuple[Cost, int, Eviction]] = []
        emptied: dict[int, list[AgentId]] = {}
        for size, present in sorted(self._snapshot.sizes.items(), reverse=True):
            divides = claim.slots % size == 0 and present >= claim.slots // size
            if size < claim.slots and (divides or mixed):
                agents, victims = self._empty(claim, kind, size, claim.slots // size)
                emptied[size] = agents
                if divides and len(agents) == claim.slots // size:
                    found.append((self._cost(victims), -size, self._whole(agents, victims)))
        if found:
            return min(found, key=lambda each: each[:2])[2]
        parts = (
            divide(claim.slots, {size: len(agents) for size, agents in emptied.items()}, mixed=True) if mixed else None
        )
        if parts is None:
            return None
        agents = [agent for size, count in sorted(parts.items(), reverse=True) for agent in emptied[size][:count]]
        chosen_victims = _Victims(self._precedence)
        for agent in agents:
            # Each size was emptied by itself: a victim for one need not yield for all of them.
            leave = self._all_on(claim, agent, chosen_victims)
            if leave is None:
                return None
            for each in leave:
                chosen_victims.add(each)
        return self._whole(agents, list(chosen_victims.allocations.values()))

    def _whole(self, agents: Iterable[AgentId], victims: Iterable[Allocation]) -> Eviction:
        keep = tuple((agent, self._rooms.state(agent).size) for agent in agents)
        return Eviction(victims=tuple(sorted(victims, key=self._cheapness)), keep=keep)

    def _empty(self, claim: Claim, kind: object, size: int, count: int) -> tuple[list[AgentId], list[Allocation]]:
        """Up to `count` agents of the size, each emptied at the least cost given those before it. If `count` can be emptied, only
        waste decides between agents whose work is no more important than the most important victim."""
        candidates = self._candidates_of(claim, (kind, size), size)
        idle = self._rooms.idle_agents(size, count, claim.refuses, later=True)
        chosen = dict.fromkeys(idle)
        victims = _Victims(self._precedence)

        def leaving(agent: AgentId) -> list[Allocation] | None:
            room = self._snapshot.rooms.get(agent)
            if room is None or room.size != size or agent in chosen or claim.refuses(agent):
                return None
            return self._all_on(claim, agent, victims)

        def cost_of(agent: AgentId) -> Cost | None:
            leave = leaving(agent)
            return None if leave is None else self._cost(leave)

        met: list[tuple[Cost, AgentId]] = []
        while len(chosen) < count and (found := candidates.pop(cost_of)) is not None:
            met.append(found)
            leave = leaving(found[1]) or []
            chosen[found[1]] = None
            for victim in leave:
                victims.add(victim)
            # The victims also vacate their other agents, which have become cheaper.
            for other in sorted({c.agent for v in leave for c in v.containers if not c.ended} - chosen.keys()):
                if (cost := cost_of(other)) is not None:
                    candidates.push(cost, other)
        needed = count - len(idle)
        if len(chosen) == count and met:
            most = max(cost[0] for cost, _ in met)
            # Fewer than needed can be emptied without victims of this importance: only these and the next can be cheaper.
            while sum(cost[0] == most for cost, _ in met) < needed and (found := candidates.pop(cost_of, most)):
                met.append(found)
        for cost, agent in met:
            candidates.push(cost, agent)  # the caller may choose others; if not, the agents are found to be held
        leave, cheaper = list(victims.allocations.values()), self._least_waste(claim, met, needed)
        if len(chosen) == count and cheaper is not None and self._cost(cheaper[1]) < self._cost(leave):
            return [*idle, *cheaper[0]], cheaper[1]
        return list(chosen), leave

    def _least_waste(
        self, claim: Claim, among: Iterable[tuple[Cost, AgentId]], count: int
    ) -> tuple[list[AgentId], list[Allocation]] | None:
        """`count` of the agents, each emptied at the least waste given those before it, and their victims."""
        heap = [(cost[1:], agent) for cost, agent in among]
        heapify(heap)
        met = {agent for _, agent in heap}
        chosen, victims = dict[AgentId, None](), _Victims(self._precedence)
        while heap and len(chosen) < count:
            known, agent = heappop(heap)
            leave = None if agent in chosen else self._all_on(claim, agent, victims)
            if leave is None:
                continue
            if (waste := self._cost(leave)[1:]) > known:
                heappush(heap, (waste, agent))  # the cost was computed after other victims
                continue
            chosen[agent] = None
            for victim in leave:
                victims.add(victim)
            for other in sorted({c.agent for v in leave for c in v.containers if not c.ended} & met):
                heappush(heap, ((0.0, 0), other))  # it has become cheaper
        return (list(chosen), list(victims.allocations.values())) if len(chosen) == count else None

    def _all_on(self, claim: Claim, agent: AgentId, chosen_victims: _Victims) -> list[Allocation] | None:
        """All further victims that empty the agent; None when some work may not be preempted, or the agent is held."""
        state = self._rooms.state(agent)
        staying = self._staying(agent)
        # Allocations placed in this pass stay, and only the rooms know them.
        emptied = len(state.free) + state.leaving + sum(used for _, used in staying) == state.size
        if state.held or not emptied:
            return None
        leave = [allocation for allocation, _ in staying if allocation.id not in chosen_victims.allocations]
        asked: list[Allocation] = []
        for allocation in leave:
            if not self._may_evict(claim, allocation, chosen_victims):
                break
            chosen_victims.add(allocation)
            asked.append(allocation)
        for allocation in asked:
            chosen_victims.discard(allocation)  # the caller chooses whether to preempt them
        return leave if len(asked) == len(leave) else None

    # -- candidates --------------------------------------------------------------------------------------------

    def _staying(self, agent: AgentId) -> list[_Candidate]:
        """Allocations with usable slots there that are not vacating, with the number of those slots."""
        found = []
        for id_, occupant in self._snapshot.occupancy.get(agent) or ():
            if not occupant.leaving and id_ not in self._evicted and (slots := self._usable(agent, occupant.slots)):
                found.append((self._snapshot.allocations[id_], slots))
        return found

    def _usable(self, agent: AgentId, slots: tuple[int, ...]) -> int:
        usable = self._usable_slots.get(agent)
        if usable is None:
            usable = self._usable_slots[agent] = self._snapshot.agents[agent].usable_slots
        return len(usable.intersection(slots))

    def _may_evict(self, claim: Claim, allocation: Allocation, chosen_victims: _Victims) -> bool:
        if not allocation.preemptible or not self._precedence.yields(allocation, claim, chosen_victims.lost):
            return False
        ripe_at = allocation.running_since + timedelta(seconds=self._snapshot.policy.min_runtime_s)
        if self._snapshot.now < ripe_at:
            self.ripe_at = min(ripe_at, self.ripe_at or ripe_at)
            return False
        return True

    def _lost_work(self, allocation: Allocation) -> float:
        lost_s = (self._snapshot.now - allocation.wasted_since).total_seconds()
        return allocation.slots_needed * max(lost_s, 0.0)

    def _weight(self, allocation: Allocation) -> float:
        return _weight(allocation, self._snapshot.now, without_history=self._without_history)

    def _cheapness(self, allocation: Allocation) -> tuple[object, ...]:
        precedence = self._precedence
        return (
            precedence.importance(allocation),
            self._weight(allocation),
            precedence.last_resort(allocation),
            allocation.id,
        )

    def _cost(self, victims: Iterable[Allocation]) -> Cost:
        leave = list(victims)
        if not leave:
            return _NOTHING
        importance = max(self._precedence.importance(allocation) for allocation in leave)
        return (importance, sum(self._weight(allocation) for allocation in leave), len(leave))

    def _leave(self, eviction: Eviction) -> None:
        self._evicted.update((victim.id, victim) for victim in eviction.victims)
        self._precedence.left(eviction.victims)
        for victim in eviction.victims:
            for agent, slots in self._slots_of(victim):
                self._rooms.vacate(agent, slots, stays_busy=bool(self._staying(agent)))

    def _slots_of(self, victim: Allocation) -> list[tuple[AgentId, int]]:
        """Usable slots that it holds, on agents that may be given work; none where it holds only others."""
        rooms = self._snapshot.rooms
        agents = sorted({c.agent for c in victim.containers if not c.ended and c.slots and c.agent in rooms})
        slots = {
            agent: [i for c in victim.containers if c.agent == agent and not c.ended for i in c.slots]
            for agent in agents
        }
        return [(agent, usable) for agent in agents if (usable := self._usable(agent, tuple(slots[agent])))]

    # -- afterwards --------------------------------------------------------------------------------------------

    def spared(self) -> set[AllocationId]:
        """Unneeded victims: those whose slots the victims for a later claim free as well. The most important first."""

        def unneeded(victim: Allocation) -> bool:
            return all(self._rooms.state(agent).eventually_free >= slots for agent, slots in self._slots_of(victim))

        found: set[AllocationId] = set()
        for victim in sorted(filter(unneeded, self._evicted.values()), key=self._cheapness, reverse=True):
            if unneeded(victim):
                found.add(victim.id)
                for agent, slots in self._slots_of(victim):
                    self._rooms.stay(agent, slots)
        return found


def _weight(allocation: Allocation, now: datetime, *, without_history: bool) -> float:
    """The waste of preempting it, in slot-seconds, weighted by the likelihood that its search needs it, including its earlier
    preemptions unless `without_history`."""
    since = allocation.wasted_since if without_history else allocation.counted_since
    return allocation.slots_needed * allocation.worth.likelihood * max((now - since).total_seconds(), 0.0)
