"""Who holds how much of a fair-share pool, and who waits in which order: kept beside the snapshot, in the size of a change.

A job belongs to a path of groups, from the outermost to the job itself: `(job,)`, or `(workspace, user, job)` where the pool's
shares are hierarchical. The *charge* of a group is the slots that it would hold with one more, over its weight; what is being
left is not counted. Where the pool remembers, what a workspace or user has used lately comes on top (`domain.usage`). Giving
each slot to the smallest charge is Jefferson's (D'Hondt's) method of apportionment: nobody gets less than its part by weight,
rounded down, and no two can both gain by trading a slot.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.sorted_map import Meter, SortedMap

Path = tuple[str, ...]

Place = TypeVar("Place")


USER_DEPTH = 2
"""Of the path of a user in a workspace."""


class Member(NamedTuple):
    """A job as a sharer."""

    job: JobId
    parents: Path
    weight: float

    @property
    def path(self) -> Path:
        return (*self.parents, self.job)


class LineKey(NamedTuple):
    """Waiting jobs that differ in nothing but what they hold: for each of them the same can be done, the poorest first."""

    parents: Path
    weight: float
    shape: Shape


class Turn(NamedTuple):
    """The order within a line: the smallest charge first, then who has waited longest."""

    charge: float
    since: datetime
    job: JobId


class Rank(NamedTuple):
    """Jobs of which something may be preempted: first whose charge stays the greatest when they lose the least they can, and of
    those the ones that can lose the least."""

    parents: Path
    negative_rest: float
    smallest: int
    job: JobId


class Poor(NamedTuple):
    """Jobs in groups that wait for slots: the poorest first."""

    parents: Path
    charge: float
    job: JobId


class Wealth(NamedTuple):
    """Groups of jobs within which something may be preempted: first whose charge stays the greatest when they lose the least they
    can."""

    parents: Path
    negative_rest: float
    name: str


class Need(NamedTuple):
    """Groups inside which somebody waits for slots: the poorest first."""

    parents: Path
    burden: float
    name: str


Lines = SortedMap[LineKey, SortedMap[Turn, bool]]
Waiting = SortedMap[Shape, SortedMap[QueueKey, AllocationId]]


class Evictable(NamedTuple):
    """What of a job may be preempted, with its slots, the smallest first."""

    member: Member
    allocations: SortedMap[tuple[int, AllocationId], bool]


class Shares(Struct, frozen=True, kw_only=True, gc=False):
    """`held`: slots by group. `used`: what workspaces and users are charged for their past, in slots. `lines`: who waits,
    by the group of jobs.
    `waiting`: what each job waits with. `evictable`: what of each job may be preempted.
    `needs`: the groups inside which somebody waits for slots, in order."""

    held: SortedMap[Path, int]
    used: SortedMap[Path, float]
    lines: SortedMap[Path, Lines]
    waiting: SortedMap[JobId, Waiting]
    evictable: SortedMap[JobId, Evictable]
    needs: SortedMap[Need, bool]
    known_orders: Orders | None = None
    """Once somebody has asked for `orders`."""

    @staticmethod
    def empty(meter: Meter | None = None) -> Shares:
        return Shares(
            held=SortedMap(meter=meter),
            used=SortedMap(meter=meter),
            lines=SortedMap(meter=meter),
            waiting=SortedMap(meter=meter),
            evictable=SortedMap(meter=meter),
            needs=SortedMap(meter=meter),
        )

    @property
    def orders(self) -> Orders:
        """Who may have to leave for whom. Worked out when it is first asked for, and from then on kept up to date with what is
        derived: while there is room for all nobody asks."""
        if self.known_orders is None:
            self._set(known_orders=Orders.of(self))
        assert self.known_orders is not None, "worked out"
        return self.known_orders

    def __eq__(self, other: object) -> bool:
        """Whether somebody has asked for the orders already makes no difference."""
        if not isinstance(other, Shares):
            return NotImplemented
        return self.orders == other.orders and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def charge(self, member: Member) -> float:
        """Of the job itself."""
        return ((self.held.get(member.path) or 0) + 1) / member.weight

    def with_used(self, user: Path, charged: float) -> Shares:
        """A user's past, and with it his workspace's. The sums are exact: see `domain.usage.GRAIN`."""
        more = charged - (self.used.get(user) or 0.0)
        used = self.used
        for group in (user[:1], user) if more else ():
            total = (used.get(group) or 0.0) + more
            used = used.set(group, total) if total else used.discard(group)
        if used is self.used:
            return self
        derived = replace(self, used=used)
        derived._grade(user, self)
        if self.known_orders is not None:
            derived._set(known_orders=self.known_orders.graded(user, self.known_orders, self, derived))
        return derived

    def burden(self, group: Path) -> float:
        """What the group holds, and is charged for its past."""
        return (self.held.get(group) or 0) + (self.used.get(group) or 0.0)

    def _need_of(self, group: Path, *, jobs: bool) -> Need | None:
        """`jobs`: the group is one of jobs."""
        waits = group in self.lines if jobs else self.anybody_waits(group)
        return Need(group[:-1], self.burden(group), group[-1]) if waits else None

    def anybody_waits(self, group: Path) -> bool:
        """For slots, inside the group."""
        inside = self.needs.first_key_from((group,))
        return group in self.lines or (inside is not None and inside.parents == group)

    def _grade(self, parents: Path, before: Shares) -> None:
        """Put the groups that a job is in where their order says now; `before` is where they stand there still. Only for shares
        that are being derived, which nobody else has seen."""
        if not (len(self.lines) or len(before.lines)):
            return  # nobody waits
        for depth in range(len(parents), 0, -1):
            group, jobs = parents[:depth], depth == len(parents)
            self._set(needs=_moved(self.needs, before._need_of(group, jobs=jobs), self._need_of(group, jobs=jobs)))

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            force_setattr(self, name, value)

    def with_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        mine: Waiting = self.waiting.get(member.job) or SortedMap(meter=self.held.meter)
        line = (mine.get(shape) or SortedMap(meter=self.held.meter)).set(key, key.allocation)
        return self._changed(member, waiting=self.waiting.set(member.job, mine.set(shape, line)))

    def without_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        return self._changed(member, waiting=self._waiting_without(member, shape, key))

    def _waiting_without(self, member: Member, shape: Shape, key: QueueKey) -> SortedMap[JobId, Waiting]:
        mine = self.waiting[member.job]
        line = mine[shape].discard(key)
        mine = mine.set(shape, line) if len(line) else mine.discard(shape)
        return self.waiting.set(member.job, mine) if len(mine) else self.waiting.discard(member.job)

    def with_running(
        self, member: Member, allocation: Allocation, *, evictable: bool, waited: tuple[Shape, QueueKey] | None = None
    ) -> Shares:
        """It holds slots and is not leaving. `waited`: it had waited until now, and does no more."""
        waiting = None if waited is None else self._waiting_without(member, *waited)
        held = self._booked(member, allocation.slots_held)
        if not evictable:
            return self._changed(member, held=held, waiting=waiting)
        slots, mine = allocation.slots_held, self.evictable.get(member.job)
        there = SortedMap[tuple[int, AllocationId], bool](meter=self.held.meter) if mine is None else mine.allocations
        of_jobs = self.evictable.set(member.job, Evictable(member, there.set((slots, allocation.id), True)))
        return self._changed(member, held=held, waiting=waiting, evictable=of_jobs, counted=(slots, 1))

    def without_running(self, member: Member, allocation: Allocation, *, evictable: bool) -> Shares:
        slots, of_jobs = allocation.slots_held, self.evictable
        held = self._booked(member, -slots)
        if not evictable:
            return self._changed(member, held=held)
        mine = of_jobs[member.job].allocations.discard((slots, allocation.id))
        of_jobs = of_jobs.set(member.job, Evictable(member, mine)) if len(mine) else of_jobs.discard(member.job)
        return self._changed(member, held=held, evictable=of_jobs, counted=(slots, -1))

    def _booked(self, member: Member, slots: int) -> SortedMap[Path, int]:
        held = self.held
        for depth in range(1, len(member.path) + 1):
            group = member.path[:depth]
            total = (held.get(group) or 0) + slots
            held = held.set(group, total) if total else held.discard(group)
        return held

    def _changed(
        self,
        member: Member,
        *,
        held: SortedMap[Path, int] | None = None,
        waiting: SortedMap[JobId, Waiting] | None = None,
        evictable: SortedMap[JobId, Evictable] | None = None,
        counted: tuple[int, int] | None = None,
    ) -> Shares:
        """With new facts about one job, and its entries where the order says now. `counted`: so many more of `evictable` have so
        many slots, as (slots, more)."""
        changed = replace(
            self,
            held=self.held if held is None else held,
            waiting=self.waiting if waiting is None else waiting,
            evictable=self.evictable if evictable is None else evictable,
        )
        before, after = self._turns(member), changed._turns(member)
        lines = self._lines_with(member, before, after)
        if held is None and lines is self.lines:
            return changed
        changed._set(lines=lines)
        changed._grade(member.parents, self)
        if self.known_orders is not None:
            changed._set(known_orders=self.known_orders.after(member, self, changed, counted))
        return changed

    def _lines_with(
        self, member: Member, before: dict[LineKey, Turn], after: dict[LineKey, Turn]
    ) -> SortedMap[Path, Lines]:
        """The job where the order says now."""
        if before == after:
            return self.lines
        mine: Lines = self.lines.get(member.parents) or SortedMap(meter=self.held.meter)
        for key, turn in before.items():
            if after.get(key) != turn:
                line = mine[key].discard(turn)
                mine = mine.set(key, line) if len(line) else mine.discard(key)
        for key, turn in after.items():
            if before.get(key) != turn:
                mine = mine.set(key, (mine.get(key) or SortedMap(meter=self.held.meter)).set(turn, True))
        return self.lines.set(member.parents, mine) if len(mine) else self.lines.discard(member.parents)

    def _turns(self, member: Member) -> dict[LineKey, Turn]:
        """Where the job stands in each line. Work without slots is not divided."""
        mine = self.waiting.get(member.job)
        if mine is None:
            return {}
        charge = self.charge(member)
        turns = {}
        for shape, waiting in mine.items():
            first = waiting.first_key()
            if shape.slots > 0 and first is not None:
                key = LineKey(member.parents, member.weight, shape)
                turns[key] = Turn(charge, first.requested_at, member.job)
        return turns

    def poverty(self, member: Member) -> Poor | None:
        """Where the job stands among those that wait, for its turns all have its charge. Where all jobs are in one group nobody
        asks."""
        turn = next(iter(self._turns(member).values()), None) if member.parents else None
        return None if turn is None else Poor(member.parents, turn.charge, member.job)

    def rank(self, member: Member) -> Rank | None:
        """Where the job stands among those of which something may be preempted."""
        mine = self.evictable.get(member.job)
        smallest = None if mine is None else mine.allocations.first_key()
        if smallest is None:
            return None
        rest = ((self.held.get(member.path) or 0) - smallest[0] + 1) / member.weight
        return Rank(member.parents, -rest, smallest[0], member.job)


class Orders(Struct, frozen=True, kw_only=True, gc=False):
    """What follows from shares for those who may have to leave.

    `ranks`: the jobs of `Shares.evictable` in order. `poor`: the jobs of `Shares.lines` that are in groups, in order.
    `sizes`: how many of what may be preempted have so many slots, by group of jobs, and `wealth`: these groups in order.
    `uneven`: the groups inside which somebody might have to leave for another; inside all others nobody has to."""

    ranks: SortedMap[Rank, bool]
    poor: SortedMap[Poor, bool]
    sizes: SortedMap[tuple[Path, int], int]
    wealth: SortedMap[Wealth, bool]
    uneven: SortedMap[Path, bool]

    @staticmethod
    def of(shares: Shares) -> Orders:
        """All at once."""
        meter, evictable = shares.held.meter, list(shares.evictable.values())
        waiting = {
            Poor(parents, turn.charge, turn.job)
            for parents, lines in shares.lines.items()
            for line in lines.values()
            for turn in line
            if parents
        }
        sizes = Counter(
            (each.member.parents[: depth + 1], slots)
            for each in evictable
            for slots, _ in each.allocations
            for depth in range(len(each.member.parents))
        )
        groups, of_jobs = {group for group, _ in sizes}, {each.member.parents for each in evictable}
        ranks = (rank for each in evictable if (rank := shares.rank(each.member)) is not None)
        orders = Orders(
            ranks=SortedMap.of(((rank, True) for rank in ranks), meter=meter),
            poor=SortedMap.of(((poor, True) for poor in waiting), meter=meter),
            sizes=SortedMap.of(sizes.items(), meter=meter),
            wealth=SortedMap(meter=meter),
            uneven=SortedMap(meter=meter),
        )
        wealth = (rich for group in groups if (rich := orders._wealth_of(shares, group)) is not None)
        orders._set(wealth=SortedMap.of(((rich, True) for rich in wealth), meter=meter))
        uneven = ((group, True) for group in groups if orders._is_uneven(shares, group, jobs=group in of_jobs))
        orders._set(uneven=SortedMap.of(uneven, meter=meter))
        return orders

    def after(self, member: Member, before: Shares, after: Shares, counted: tuple[int, int] | None) -> Orders:
        """When one job has changed; `counted` as of `Shares`."""
        changed = replace(
            self,
            # Only what is held and may be preempted decides the rank.
            ranks=_moved(self.ranks, before.rank(member), after.rank(member))
            if after.held is not before.held
            else self.ranks,
            poor=_moved(self.poor, before.poverty(member), after.poverty(member)),
            sizes=self.sizes if counted is None else self._counted(member, *counted),
        )
        return changed.graded(member.parents, self, before, after)

    def graded(self, parents: Path, known: Orders, before: Shares, after: Shares) -> Orders:
        """With the groups that a job is in where the orders say now; `known` is where they stood `before`."""
        graded = replace(self)
        burdened = after.held is not before.held or after.used is not before.used or self.sizes is not known.sizes
        for depth in range(len(parents), 0, -1):
            group, jobs = parents[:depth], depth == len(parents)
            if burdened:
                rich, richer = known._wealth_of(before, group), graded._wealth_of(after, group)
                graded._set(wealth=_moved(graded.wealth, rich, richer))
            if (uneven := graded._is_uneven(after, group, jobs=jobs)) != (group in graded.uneven):
                graded._set(uneven=graded.uneven.set(group, True) if uneven else graded.uneven.discard(group))
        return graded

    def smallest(self, group: Path) -> int:
        """Slots of the smallest that may be preempted within the group of jobs; 0 when nothing may."""
        found = self.sizes.first_key_from((group, 0))
        return found[1] if found is not None and found[0] == group else 0

    def _wealth_of(self, shares: Shares, group: Path) -> Wealth | None:
        smallest = self.smallest(group)
        return Wealth(group[:-1], -(shares.burden(group) - smallest + 1), group[-1]) if smallest else None

    def _is_uneven(self, shares: Shares, group: Path, *, jobs: bool) -> bool:
        """Somebody keeps more than another would have with one more slot; of jobs it may be the same one."""
        if not jobs:
            need, rich = shares.needs.first_key_from((group,)), self.wealth.first_key_from((group,))
            found = need is not None and rich is not None and need.parents == rich.parents == group
            return found and need is not None and rich is not None and -rich.negative_rest > need.burden + 1
        rank, poorest = self.ranks.first_key_from((group,)), self.poor.first_key_from((group,))
        found = rank is not None and poorest is not None and rank.parents == poorest.parents == group
        return found and rank is not None and poorest is not None and -rank.negative_rest > poorest.charge

    def _counted(self, member: Member, slots: int, more: int) -> SortedMap[tuple[Path, int], int]:
        sizes = self.sizes
        for depth in range(1, len(member.parents) + 1):
            key = (member.parents[:depth], slots)
            count = (sizes.get(key) or 0) + more
            sizes = sizes.set(key, count) if count else sizes.discard(key)
        return sizes

    def _set(self, **values: object) -> None:
        """Only for orders that are being derived, which nobody else has seen."""
        for name, value in values.items():
            force_setattr(self, name, value)


def _moved(order: SortedMap[Place, bool], old: Place | None, new: Place | None) -> SortedMap[Place, bool]:
    """With something where it stands now; None: it stands nowhere."""
    if old == new:
        return order
    without = order if old is None else order.discard(old)
    return without if new is None else without.set(new, True)
