"""The agents during one pass: free slots, vacating slots, and holds.

A working copy over a snapshot that reads only what is needed. Rules of placement:

- work that fits on one agent runs on one: the tightest (`best`) or the emptiest (`worst`); ties go to the agent in use, then
  to the smaller id;
- larger work takes whole idle agents, all of one size if that divides it evenly, the largest such size first;
  if the pool allows mixed sizes, the fewest agents whose sizes add up exactly;
- work without slots takes one of the agent's auxiliary places.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from resolute_master.domain.ids import AgentId
from resolute_master.domain.pool import Fitting
from resolute_master.scheduler.rooms import Groups, Place, Room, RoomGroup
from resolute_master.scheduler.snapshot import PoolSnapshot

Refuses = Callable[[AgentId], bool]
"""Whether work may not go to an agent."""


class _Group:
    """Agents of one group, lowest id first: those of the snapshot, read as needed, and those that were moved here."""

    __slots__ = ("ahead", "moved", "source")

    def __init__(self, source: Iterator[AgentId]) -> None:
        self.source = source
        self.ahead = next(source, None)
        self.moved: list[AgentId] = []

    def pop(self) -> AgentId | None:
        if self.ahead is not None and (not self.moved or self.ahead <= self.moved[0]):
            agent, self.ahead = self.ahead, next(self.source, None)
            return agent
        return heappop(self.moved) if self.moved else None


class _Index:
    """Agents by group. Outdated entries are dropped when they are reached."""

    def __init__(self, source: Groups) -> None:
        self._source = source
        self._members: dict[RoomGroup, _Group] = {}
        self._now: dict[AgentId, RoomGroup | None] = {}
        self.groups: list[RoomGroup] = source.key_list()
        """The groups in order, without empty ones."""

    def _group(self, group: RoomGroup) -> _Group:
        members = self._members.get(group)
        if members is None:
            members = self._members[group] = _Group(iter(self._source.get(group) or ()))
        return members

    def move(self, agent: AgentId, group: RoomGroup | None) -> None:
        self._now[agent] = group
        if group is not None:
            at = bisect_left(self.groups, group)
            if at == len(self.groups) or self.groups[at] != group:
                insort(self.groups, group)
            heappush(self._group(group).moved, agent)

    def pick(self, group: RoomGroup, count: int, refuses: Refuses) -> list[AgentId]:
        """Up to `count` agents of the group that are not refused. They remain in it."""
        members = self._group(group)
        kept: list[AgentId] = []
        picked: list[AgentId] = []
        while len(picked) < count and (agent := members.pop()) is not None:
            if self._now.get(agent, group) != group or (kept and kept[-1] == agent):
                continue
            kept.append(agent)
            if not refuses(agent):
                picked.append(agent)
        for agent in kept:
            heappush(members.moved, agent)
        if not kept and count > 0:
            at = bisect_left(self.groups, group)
            del self.groups[at : at + (self.groups[at : at + 1] == [group])]
        return picked

    def fitting(self, slots: int) -> Iterator[RoomGroup]:
        """Groups with at least `slots` free slots, the tightest first."""
        yield from self.groups[bisect_left(self.groups, RoomGroup(slots, False, 0)) :]


class _State:
    """One agent during the pass."""

    __slots__ = ("aux", "busy", "free", "held", "leaving", "size", "softly_held", "stays_busy")

    def __init__(self, room: Room) -> None:
        self.size = room.size
        self.free = room.free
        self.leaving = room.leaving
        self.busy = room.busy
        self.stays_busy = room.stays_busy
        self.aux = room.aux
        self.held = 0
        self.softly_held = 0

    @property
    def claimed(self) -> bool:
        """Whether some of its slots are held."""
        return self.held > 0 or self.softly_held > 0

    @property
    def eventually_free(self) -> int:
        """Slots that are neither used nor held after the vacating allocations have ended; negative if more are held."""
        return len(self.free) + self.leaving - self.held

    @property
    def takeable(self) -> int:
        return max(0, min(len(self.free), self.eventually_free))

    @property
    def group(self) -> RoomGroup:
        return RoomGroup(self.takeable, not self.busy and not self.held, self.size)

    @property
    def later_group(self) -> RoomGroup | None:
        if self.leaving == 0 or self.eventually_free <= 0:
            return None
        return RoomGroup(self.eventually_free, not self.stays_busy and not self.held, self.size)


class Rooms:
    """Finds agents for allocations, and records the slots that were taken, held and vacated during the pass."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._states: dict[AgentId, _State] = {}
        self._index = _Index(snapshot.groups)
        self._later = _Index(snapshot.later_groups)
        self._places = iter(snapshot.places)
        self._next_place = next(self._places, None)
        self._moved_places: list[Place] = []

    @property
    def none(self) -> bool:
        """Whether no slot can be taken now, nor after the vacating allocations have ended."""
        return all(not index.groups or index.groups[-1].free == 0 for index in (self._index, self._later))

    @property
    def no_place(self) -> bool:
        """Whether no agent accepts a further container without slots."""
        return self._next_place is None and not self._moved_places

    def has(self, agent: AgentId) -> bool:
        """Whether the agent accepts work."""
        return agent in self._states or agent in self._snapshot.rooms

    def state(self, agent: AgentId) -> _State:
        state = self._states.get(agent)
        if state is None:
            state = self._states[agent] = _State(self._snapshot.rooms[agent])
        return state

    # -- finding agents ----------------------------------------------------------------------------------------

    def one_agent(self, slots: int, refuses: Refuses) -> AgentId | None:
        """An agent with `slots` free slots now."""
        groups = self._index.fitting(slots)
        if self._snapshot.policy.fitting is Fitting.WORST:
            groups = iter(sorted(groups, key=lambda g: (-g.free / g.size, g.idle, -g.size)))
        return next((agents[0] for group in groups if (agents := self._index.pick(group, 1, refuses))), None)

    def one_agent_later(self, slots: int, refuses: Refuses) -> AgentId | None:
        """An agent with `slots` free slots after the vacating allocations have ended."""
        groups = self._later.fitting(slots)
        return next((agents[0] for group in groups if (agents := self._later.pick(group, 1, refuses))), None)

    def whole_agents(self, slots: int, refuses: Refuses, *, later: bool = False) -> list[AgentId] | None:
        """Idle agents (`later`: idle after the vacating allocations have ended), with exactly `slots` slots together."""
        mixed = self._snapshot.policy.heterogeneous_fits
        sizes = [size for size in self._snapshot.sizes if size < slots and (mixed or slots % size == 0)]
        found = {size: self.idle_agents(size, slots // size, refuses, later=later) for size in sizes}
        counts = {size: len(agents) for size, agents in found.items()}
        parts = divide(slots, counts, mixed=mixed)
        if parts is None:
            return None
        return [agent for size, count in sorted(parts.items(), reverse=True) for agent in found[size][:count]]

    def idle_agents(self, size: int, count: int, refuses: Refuses, *, later: bool) -> list[AgentId]:
        """Up to `count` idle agents of the size; with `later` also those that are being vacated, after the others."""
        group = RoomGroup(size, True, size)
        agents = self._index.pick(group, count, refuses)
        if later and len(agents) < count:
            agents.extend(self._later.pick(group, count - len(agents), refuses))
        return agents

    def emptiest(self, least: int, most: int, count: int, refuses: Refuses) -> list[AgentId]:
        """Up to `count` agents of `least` to `most` slots without a hold: those with the most free slots later come first."""

        def refused(agent: AgentId) -> bool:
            state = self.state(agent)
            return state.claimed or refuses(agent)

        ranked = [
            (-group.free, number, group, index)
            for number, index in enumerate((self._index, self._later))
            for group in index.groups
            if least <= group.size <= most
        ]
        found: dict[AgentId, bool] = {}
        for _, _, group, index in sorted(ranked, key=lambda each: each[:3]):
            # An agent that is being vacated is listed in both indexes, so more are read than are missing.
            for agent in index.pick(group, count + len(found), refused):
                found.setdefault(agent, True)
            if len(found) >= count:
                break
        return list(found)[:count]

    def aux_agent(self, refuses: Refuses) -> AgentId | None:
        """An agent that accepts a further container without slots."""
        kept: list[Place] = []
        chosen: AgentId | None = None
        while chosen is None and (place := self._pop_place()) is not None:
            now = self._place(place.agent)
            if now != place:
                if now is not None:
                    heappush(self._moved_places, now)
            elif not kept or kept[-1] != place:
                kept.append(place)
                chosen = None if refuses(place.agent) else place.agent
        for place in kept:
            heappush(self._moved_places, place)
        return chosen

    def _pop_place(self) -> Place | None:
        if self._next_place is not None and (not self._moved_places or self._next_place <= self._moved_places[0]):
            place, self._next_place = self._next_place, next(self._places, None)
            return place
        return heappop(self._moved_places) if self._moved_places else None

    def _place(self, agent: AgentId) -> Place | None:
        state = self.state(agent)
        return Place.of(self._snapshot.policy, agent, busy=state.busy, free=len(state.free), aux=state.aux)

    # -- what happens during the pass --------------------------------------------------------------------------

    def take(self, agent: AgentId, slots: int) -> tuple[int, ...]:
        """Assign free slots; returns their numbers."""
        state = self.state(agent)
        chosen = side_by_side(state.free, slots)
        state.free = tuple(index for index in state.free if index not in chosen)
        state.busy = state.stays_busy = True
        self._moved(agent, state)
        return chosen

    def take_aux(self, agent: AgentId) -> None:
        self.state(agent).aux += 1

    def hold(self, agent: AgentId, slots: int, *, soft: bool = False) -> None:
        """Hold slots for a pending allocation; a soft hold binds only non-preemptible allocations."""
        state = self.state(agent)
        if soft:
            state.softly_held += slots
        else:
            state.held += slots
            self._moved(agent, state)

    def vacate(self, agent: AgentId, slots: int, *, stays_busy: bool) -> None:
        """Record that some allocations on the agent are preempted; `stays_busy` if others are not."""
        state = self.state(agent)
        state.leaving += slots
        state.stays_busy = stays_busy
        self._moved(agent, state)

    def stay(self, agent: AgentId, slots: int) -> None:
        """Record that some victims on the agent are no longer needed."""
        state = self.state(agent)
        state.leaving -= slots
        state.stays_busy = True
        self._moved(agent, state)

    def _moved(self, agent: AgentId, state: _State) -> None:
        self._index.move(agent, state.group)
        self._later.move(agent, state.later_group)


def side_by_side(free: Sequence[int], slots: int) -> tuple[int, ...]:
    """The shortest run of neighbouring numbers that is long enough, else the lowest numbers.

    Neighbouring devices of a machine usually have the faster connection.
    """
    if slots == len(free):
        return tuple(free)
    runs: list[list[int]] = []
    for index in free:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    run = min((run for run in runs if len(run) >= slots), key=len, default=free)
    return tuple(run[:slots])


def divide(slots: int, agents: Mapping[int, int], *, mixed: bool) -> dict[int, int] | None:
    """Whole agents with exactly `slots` slots together, as size -> count; `agents` has the number of agents of each size.

    One size if possible, the largest first; else, if `mixed`, the fewest agents of several sizes.
    """
    if sum(size * count for size, count in agents.items()) < slots:
        return None  # no table is made for a request of an arbitrary number of slots
    for size in sorted(agents, reverse=True):
        if slots % size == 0 and agents[size] >= slots // size:
            return {size: slots // size}
    return _divide_mixed(slots, agents) if mixed else None


def _divide_mixed(slots: int, agents: Mapping[int, int]) -> dict[int, int] | None:
    """A bounded knapsack: exact where taking the largest first would miss a solution."""
    lots: list[tuple[int, int]] = []
    for size in sorted(agents, reverse=True):
        left, count = min(agents[size], slots // size), 1
        while left > 0:
            lots.append((size, min(count, left)))
            left, count = left - count, count * 2
    fewest: list[int | None] = [0] + [None] * slots
    chosen: list[list[bool]] = []
    for size, count in lots:
        weight, used = size * count, [False] * (slots + 1)
        for total in range(slots, weight - 1, -1):
            rest = fewest[total - weight]
            here = fewest[total]
            if rest is not None and (here is None or rest + count < here):
                fewest[total], used[total] = rest + count, True
        chosen.append(used)
    if fewest[slots] is None:
        return None
    parts: dict[int, int] = {}
    for (size, count), used in zip(reversed(lots), reversed(chosen), strict=True):
        if used[slots]:
            parts[size] = parts.get(size, 0) + count
            slots -= size * count
    return parts
