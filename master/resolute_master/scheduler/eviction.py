"""Whom to preempt for whom.

Who may be made to leave for whom is the scheduler's rule (`Precedence`); and nothing that has run for less than the pool's
`min_runtime`. A set of victims is chosen as a whole, only if it makes the room, and none of it is
unneeded. Of all agents, the set whose most important victim is the least important wins, then the one that wastes the least
time: slots times what an end now would have them do once more, the time since the last checkpoint and that of a start, and so
much for each time that they have made room before (`Allocation.counted_since`), all of it in the proportion in which their
search is likely to need them (`Worth.likelihood`). Then the smaller one. Whether it pays at all to make anybody leave is judged
by what really is lost.

Where each victim is judged by itself (`Precedence.independent`) the set on one agent is the cheapest that there is, and so is
the agent; where what one loses spares another, the cheapest are taken one by one. A gang's agents are emptied one by one.
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
"""Of those who share slots; see `shares`."""

Cost = tuple[tuple[float, ...], float, float]
"""Importance of the most important victim, slot-seconds wasted, number of victims."""

_Candidate = tuple[Allocation, int]
"""One that may leave, with its usable slots."""

_Sum = tuple[float, int, tuple[int, ...]]
"""Slot-seconds that some candidates waste, how many they are, and their numbers."""

_FORGETFUL = "forgetful"
"""Of candidates that are looked for without regard to who has made room before."""

_NOTHING: Cost = ((float("-inf"),), 0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One that waits: what it needs and where it must not go."""

    allocation: Allocation
    slots: int
    single_node: bool
    where: object
    """As of its `Shape`."""
    refuses: Refuses


class Level(NamedTuple):
    """Equally important work that has to leave for one claim; `cheapest_first` says that it is in the order of what it loses."""

    importance: tuple[float, ...]
    members: Iterator[Allocation]
    cheapest_first: bool


class Precedence(Protocol):
    """Who comes before whom, during one pass."""

    independent: bool
    """Whether one has to leave does not depend on who leaves with it."""

    def levels(self, claim: Claim) -> Iterator[Level]:
        """Whatever may be evictable at all and, alone, would have to yield; the least important first."""
        ...

    def any_lesser(self, claim: Claim) -> bool:
        """False when `levels` would name nobody; may be true of some for whom they name nobody either."""
        ...

    def in_vain(self, claim: Claim) -> None:
        """Those who would have to leave for it make no room. So it is until somebody leaves or is given something."""
        ...

    def groups(self, allocation: Allocation) -> Iterable[Group]:
        """Those of which `yields` wants to know what they lose."""
        ...

    def yields(self, allocation: Allocation, claim: Claim, lost: Mapping[Group, int]) -> bool:
        """Would it have to leave for the claim, when its groups lose so many slots to the claim already?"""
        ...

    def importance(self, allocation: Allocation) -> tuple[float, ...]:
        """The greater, the later it is made to leave."""
        ...

    def last_resort(self, allocation: Allocation) -> float:
        """The greater, the later it leaves among those equally important and equally cheap."""
        ...

    def left(self, victims: Iterable[Allocation]) -> None:
        """They are asked to leave by this pass."""
        ...

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """Why, as the rest of a sentence about the claim's allocation."""
        ...


class _Leavers:
    """Who leaves for one claim, and what the groups lose with them."""

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
    """Who must leave, and the slots that are then kept on each agent."""

    victims: tuple[Allocation, ...]
    keep: tuple[tuple[AgentId, int], ...]


COMPARED = 16
"""So many that are equally important are read at a time. Where they come in no order of cost, no more are compared, those first
that are the last in their order: what a decision costs does not grow with the pool."""


class _Candidates:
    """Agents by what making room on them costs, found as they are needed: those of the least important work first.

    What is known of an agent is at first the least that it can cost, then its cost; it is looked at again when it is met, because
    the pass goes on meanwhile.
    """

    def __init__(
        self,
        levels: Iterator[Level],
        weight: Callable[[Allocation], float],
        enough: Callable[[AgentId, int], bool],
    ) -> None:
        """`enough`: whether an agent comes into question when those who were read have so many of its slots."""
        self._levels = levels
        self._level = Level(_NOTHING[0], iter(()), cheapest_first=False)
        """That is being read."""
        self._next: Allocation | None = None
        """Its first that has not been read."""
        self._read_up_to = _NOTHING
        """Whoever has not been read of this level and those before it adds no agent that costs less."""
        self._weight = weight
        self._enough = enough
        self._slots: dict[AgentId, int] = {}
        """Of those who were read."""
        self._heap: list[tuple[Cost, AgentId]] = []
        self._listed: set[AgentId] = set()
        """Those in the heap."""

    def pop(
        self, cost_of: Callable[[AgentId], Cost | None], most: tuple[float, ...] = (inf,)
    ) -> tuple[Cost, AgentId] | None:
        """The cheapest agent, taken out; agents for which `cost_of` is None are dropped. None: nothing that is more important than
        `most` has to leave any."""
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
        """Some of the level, or of the next one."""
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
        """What has not been read of the level, one look ahead."""
        while (allocation := self._next) is not None:
            self._next = next(self._level.members, None)
            yield allocation

    def _read(self, allocation: Allocation, least: Cost) -> None:
        for container in allocation.containers:
            if not container.ended:
                agent = container.agent
                self._slots[agent] = self._slots.get(agent, 0) + len(container.slots)
                if agent not in self._listed and self._enough(agent, self._slots[agent]):
                    # Without this one there was too little: it leaves there, or one that loses more.
                    self.push(least, agent)


class Evictions:
    """Victims of one pass. Nobody is chosen twice."""

    def __init__(self, snapshot: PoolSnapshot, rooms: Rooms, precedence: Precedence) -> None:
        self._snapshot = snapshot
        self._rooms = rooms
        self._precedence = precedence
        self.ripe_at: datetime | None = None
        """When the first of those that were spared for having just begun may be evicted."""
        self._forgets = False
        """Who has made room before counts like everybody else."""
        self._evicted: dict[AllocationId, Allocation] = {}
        self._candidates: dict[object, _Candidates] = {}
        """To make room on, per kind of claim; to be emptied, per kind and size."""
        self._usable_slots: dict[AgentId, frozenset[int]] = {}
        """Of agents that were looked at."""

    def find(self, claim: Claim, kind: object, pays: Callable[[int, float], bool] | None = None) -> Eviction | None:
        """Make room for the claim, or change nothing. Claims of one `kind` need the same, the most important comes first.
        `pays`: whether it should be done at all, for so many slots of the victims and so many slot-seconds that they lose."""
        if not self._precedence.any_lesser(claim):
            return None
        eviction = self._found(claim, kind)
        if eviction is None:
            self._precedence.in_vain(claim)
            return None
        if pays is not None and not self._pays(eviction, pays):
            # Whoever has made room before is spared; but nobody waits longer for that.
            self._forgets = True
            eviction = self._found(claim, (kind, _FORGETFUL))
            self._forgets = False
            if eviction is None or not self._pays(eviction, pays):
                return None
        self._leave(eviction)
        return eviction

    def find_whole(self, claim: Claim, kind: object, size: int, count: int) -> Eviction | None:
        """Empty so many agents of the size, of which some may be idle, or change nothing: the claim has the rest elsewhere."""
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
        """Agents on which so many slots may be had."""
        found = self._candidates.get(kind)
        if found is None:
            # They do not hold `self`, which holds them: only a collection of garbage would free the two.
            rooms, now, forgets = self._rooms, self._snapshot.now, self._forgets

            def weight(allocation: Allocation) -> float:
                return _weight(allocation, now, forgets=forgets)

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
        candidates.push(cost, agent)  # it may have room for another
        victims = self._victims(claim, agent, claim.slots) or ()
        return Eviction(victims=tuple(victims), keep=((agent, claim.slots),))

    def _victims(self, claim: Claim, agent: AgentId, slots: int) -> list[Allocation] | None:
        """The fewest and least important that must leave so that the agent will have so many slots free."""
        state = self._rooms.state(agent)
        missing = slots - state.eventually_free
        if slots > state.size or missing <= 0:
            return None
        staying = self._staying(agent)
        if not any(self._precedence.yields(each, claim, {}) for each, _ in staying):
            return None  # the first to leave would have to leave alone
        candidates = sorted(staying, key=lambda each: self._cheapness(each[0]))
        choose = self._cheapest if self._precedence.independent else self._one_by_one
        return choose(claim, candidates, missing)

    def _cheapest(self, claim: Claim, candidates: list[_Candidate], missing: int) -> list[Allocation] | None:
        """The least important that suffice; of those the set that wastes least, then the smallest, then the first in order."""
        ripe_at, nobody = self.ripe_at, _Leavers(self._precedence)
        best: dict[int, _Sum] = {0: (0.0, 0, ())}
        """By how many slots they have, up to those that are missing."""
        importance = _NOTHING[0]
        for number, (allocation, slots) in enumerate(candidates):
            if missing in best and self._precedence.importance(allocation) != importance:
                break
            if not self._may_evict(claim, allocation, nobody):
                continue
            importance, lost = self._precedence.importance(allocation), self._weight(allocation)
            for there, (wasted, count, numbers) in sorted(best.items(), reverse=True):
                sum_: _Sum = (wasted + lost, count + 1, (*numbers, number))
                covered = min(there + slots, missing)
                best[covered] = min(sum_, best.get(covered, sum_))
        if missing not in best:
            return None
        self.ripe_at = ripe_at  # nobody waits for those who were spared
        return [candidates[number][0] for number in best[missing][2]]

    def _one_by_one(self, claim: Claim, candidates: list[_Candidate], missing: int) -> list[Allocation] | None:
        chosen: list[_Candidate] = []
        leavers = _Leavers(self._precedence)
        for candidate in candidates:
            if missing > 0 and self._may_evict(claim, candidate[0], leavers):
                chosen.append(candidate)
                leavers.add(candidate[0])
                missing -= candidate[1]
        if missing > 0:
            return None
        # The last ones may have made some of the first unneeded: spare the most important that can be spared.
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
        leavers = _Leavers(self._precedence)
        for agent in agents:
            # Each size was emptied by itself: who yields one of them need not yield them all.
            leave = self._all_on(claim, agent, leavers)
            if leave is None:
                return None
            for each in leave:
                leavers.add(each)
        return self._whole(agents, list(leavers.allocations.values()))

    def _whole(self, agents: Iterable[AgentId], victims: Iterable[Allocation]) -> Eviction:
        keep = tuple((agent, self._rooms.state(agent).size) for agent in agents)
        return Eviction(victims=tuple(sorted(victims, key=self._cheapness)), keep=keep)

    def _empty(self, claim: Claim, kind: object, size: int, count: int) -> tuple[list[AgentId], list[Allocation]]:
        """Up to `count` agents of the size, each emptied at the least cost given those before it. If so many can be emptied, an
        agent whose work is less important than what must leave anyway has no precedence over one that wastes less."""
        candidates = self._candidates_of(claim, (kind, size), size)
        idle = self._rooms.idle_agents(size, count, claim.refuses, later=True)
        chosen = dict.fromkeys(idle)
        victims = _Leavers(self._precedence)

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
            # Whoever leaves here leaves its other agents too: they have become cheaper.
            for other in sorted({c.agent for v in leave for c in v.containers if not c.ended} - chosen.keys()):
                if (cost := cost_of(other)) is not None:
                    candidates.push(cost, other)
        needed = count - len(idle)
        if len(chosen) == count and met:
            most = max(cost[0] for cost, _ in met)
            # Fewer than are needed can be emptied without anybody so important: no others than these and the next can be cheaper.
            while sum(cost[0] == most for cost, _ in met) < needed and (found := candidates.pop(cost_of, most)):
                met.append(found)
        for cost, agent in met:
            candidates.push(cost, agent)  # the caller may choose otherwise; if not, they are found to be held
        leave, cheaper = list(victims.allocations.values()), self._least_waste(claim, met, needed)
        if len(chosen) == count and cheaper is not None and self._cost(cheaper[1]) < self._cost(leave):
            return [*idle, *cheaper[0]], cheaper[1]
        return list(chosen), leave

    def _least_waste(
        self, claim: Claim, among: Iterable[tuple[Cost, AgentId]], count: int
    ) -> tuple[list[AgentId], list[Allocation]] | None:
        """So many of the agents, each emptied at the least waste given those before it, and who leaves them."""
        heap = [(cost[1:], agent) for cost, agent in among]
        heapify(heap)
        met = {agent for _, agent in heap}
        chosen, victims = dict[AgentId, None](), _Leavers(self._precedence)
        while heap and len(chosen) < count:
            known, agent = heappop(heap)
            leave = None if agent in chosen else self._all_on(claim, agent, victims)
            if leave is None:
                continue
            if (waste := self._cost(leave)[1:]) > known:
                heappush(heap, (waste, agent))  # it was met when somebody had left it already
                continue
            chosen[agent] = None
            for victim in leave:
                victims.add(victim)
            for other in sorted({c.agent for v in leave for c in v.containers if not c.ended} & met):
                heappush(heap, ((0.0, 0), other))  # it has become cheaper
        return (list(chosen), list(victims.allocations.values())) if len(chosen) == count else None

    def _all_on(self, claim: Claim, agent: AgentId, leavers: _Leavers) -> list[Allocation] | None:
        """Everybody who must still be asked to leave the agent; None when somebody may not be, or it is held."""
        state = self._rooms.state(agent)
        staying = self._staying(agent)
        # What was placed in this pass stays, and is known to the rooms only.
        emptied = len(state.free) + state.leaving + sum(used for _, used in staying) == state.size
        if state.held or not emptied:
            return None
        leave = [allocation for allocation, _ in staying if allocation.id not in leavers.allocations]
        asked: list[Allocation] = []
        for allocation in leave:
            if not self._may_evict(claim, allocation, leavers):
                break
            leavers.add(allocation)
            asked.append(allocation)
        for allocation in asked:
            leavers.discard(allocation)  # whether they leave is the caller's choice
        return leave if len(asked) == len(leave) else None

    # -- candidates --------------------------------------------------------------------------------------------

    def _staying(self, agent: AgentId) -> list[_Candidate]:
        """Who has usable slots there and has not been asked to leave, with their number."""
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

    def _may_evict(self, claim: Claim, allocation: Allocation, leavers: _Leavers) -> bool:
        if not allocation.preemptible or not self._precedence.yields(allocation, claim, leavers.lost):
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
        return _weight(allocation, self._snapshot.now, forgets=self._forgets)

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
        """Of those chosen, who need not leave after all: who left for a later one has made room for an earlier one as well.
        The most important first."""

        def unneeded(victim: Allocation) -> bool:
            return all(self._rooms.state(agent).eventually_free >= slots for agent, slots in self._slots_of(victim))

        found: set[AllocationId] = set()
        for victim in sorted(filter(unneeded, self._evicted.values()), key=self._cheapness, reverse=True):
            if unneeded(victim):
                found.add(victim.id)
                for agent, slots in self._slots_of(victim):
                    self._rooms.stay(agent, slots)
        return found


def _weight(allocation: Allocation, now: datetime, *, forgets: bool) -> float:
    """What it loses when it leaves, in slot-seconds, as far as its search is likely to need it, and how often it has made room
    before, unless that is forgotten."""
    since = allocation.wasted_since if forgets else allocation.counted_since
    return allocation.slots_needed * allocation.worth.likelihood * max((now - since).total_seconds(), 0.0)
