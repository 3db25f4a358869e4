"""Who holds how much of a fair-share pool, and who waits in which order: kept beside the snapshot, in the size of a change.

A job belongs to a path of groups, from the outermost to the job itself: `(job,)`, or `(workspace, user, job)` where the pool's
shares are hierarchical. The *charge* of a group is the slots that it would hold with one more, over its weight; what is being
left is not counted. Where the pool remembers, what a workspace or user has used lately comes on top (`domain.usage`). Giving
each slot to the smallest charge is Jefferson's (D'Hondt's) method of apportionment: nobody gets less than its part by weight,
rounded down, and no two can both gain by trading a slot.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.sorted_map import Meter, SortedMap

Path = tuple[str, ...]

Place = TypeVar("Place")


NEVER = datetime.max.replace(tzinfo=UTC)
"""Nobody waits."""

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
    """Groups inside which somebody waits for slots: the poorest first, then whose next has waited longest."""

    burden: float
    since: datetime
    name: str


Lines = SortedMap[LineKey, SortedMap[Turn, bool]]
Turns = SortedMap[tuple[Turn, LineKey], bool]
Waiting = SortedMap[Shape, SortedMap[QueueKey, AllocationId]]


class Group(Struct, frozen=True, gc=False):
    """Jobs, or groups of them."""

    held: int
    """Slots."""
    lines: Lines
    """Who waits, where it is a group of jobs."""
    needs: SortedMap[Need, bool]
    """The groups inside it in which somebody waits for slots, in order."""
    turns: Turns
    """Who waits in all lines together, in order, where it is a group of jobs among others."""

    @property
    def waits(self) -> bool:
        """Somebody inside it waits for slots."""
        return len(self.lines) > 0 or len(self.needs) > 0

    @property
    def since(self) -> datetime:
        """Since when its next has waited: of several with the same charge the one that has waited longest."""
        turn, need = self.turns.first_key(), self.needs.first_key()
        if turn is not None:
            return turn[0].since
        return NEVER if need is None else need.since


class Sharer(Struct, frozen=True, gc=False):
    """A job that holds slots or waits."""

    member: Member
    held: int
    """Slots."""
    waiting: Waiting
    """What it waits with."""
    evictable: SortedMap[tuple[int, AllocationId], bool]
    """What of it may be preempted, with its slots, the smallest first."""

    @property
    def smallest(self) -> int:
        """Slots of the smallest that may be preempted; 0 when nothing may."""
        first = self.evictable.first_key()
        return 0 if first is None else first[0]

    @property
    def turns(self) -> dict[LineKey, Turn]:
        """Where it stands in each line. Work without slots is not divided."""
        job, parents, weight = self.member
        charge, turns = (self.held + 1) / weight, {}
        for shape, waiting in self.waiting.items():
            first = waiting.first_key()
            if shape.slots > 0 and first is not None:
                turns[LineKey(parents, weight, shape)] = Turn(charge, first.requested_at, job)
        return turns

    @property
    def poverty(self) -> Poor | None:
        """Where it stands among those that wait, for its turns all have its charge. Where all jobs are in one group nobody asks."""
        turn = next(iter(self.turns.values()), None) if self.member.parents else None
        return None if turn is None else Poor(self.member.parents, turn.charge, turn.job)

    @property
    def rank(self) -> Rank | None:
        """Where it stands among those of which something may be preempted."""
        job, parents, weight = self.member
        smallest = self.smallest
        return Rank(parents, -(self.held - smallest + 1) / weight, smallest, job) if smallest else None

    def without(self, shape: Shape, key: QueueKey) -> Sharer:
        """When that waits no more."""
        line = self.waiting[shape].discard(key)
        waiting = self.waiting.set(shape, line) if len(line) else self.waiting.discard(shape)
        return Sharer(self.member, self.held, waiting, self.evictable)


class Shares(Struct, frozen=True, kw_only=True, gc=False):
    """`groups`: by path, those that hold slots or wait; the empty path is the whole pool. `jobs`: the same of jobs. `used`: what
    workspaces and users are charged for their past, in slots."""

    groups: SortedMap[Path, Group]
    jobs: SortedMap[Path, Sharer]
    used: SortedMap[Path, float]
    known_orders: Orders | None = None
    """Once somebody has asked for `orders`."""

    @staticmethod
    def empty(meter: Meter | None = None) -> Shares:
        return Shares(groups=SortedMap(meter=meter), jobs=SortedMap(meter=meter), used=SortedMap(meter=meter))

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

    def held(self, path: Path) -> int:
        """Slots of a group or a job."""
        holder = self.groups.get(path) or self.jobs.get(path)
        return 0 if holder is None else holder.held

    def charge(self, member: Member) -> float:
        """Of the job itself."""
        return (self.held(member.path) + 1) / member.weight

    def burden(self, path: Path) -> float:
        """What a group or a job holds, and is charged for its past."""
        return self.held(path) + (self.used.get(path) or 0.0)

    def anybody_waits(self, path: Path) -> bool:
        """For slots, inside the group."""
        group = self.groups.get(path)
        return group is not None and group.waits

    def since(self, path: Path) -> datetime:
        """Since when the group's next has waited."""
        group = self.groups.get(path)
        return NEVER if group is None else group.since

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
        derived._regroup(self, user, 0, {}, {})
        if self.known_orders is not None:
            derived._set(known_orders=self.known_orders.graded(user, self.known_orders, self, derived))
        return derived

    def with_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        job = self._job(member)
        line = (job.waiting.get(shape) or SortedMap(meter=self.jobs.meter)).set(key, key.allocation)
        return self._changed(job, Sharer(member, job.held, job.waiting.set(shape, line), job.evictable))

    def without_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        job = self._job(member)
        return self._changed(job, job.without(shape, key))

    def with_running(
        self, member: Member, allocation: Allocation, *, evictable: bool, waited: tuple[Shape, QueueKey] | None = None
    ) -> Shares:
        """It holds slots and is not leaving. `waited`: it had waited until now, and does no more."""
        job, slots = self._job(member), allocation.slots_held
        waiting = job.waiting if waited is None else job.without(*waited).waiting
        there = job.evictable.set((slots, allocation.id), True) if evictable else job.evictable
        return self._changed(job, Sharer(member, job.held + slots, waiting, there))

    def without_running(self, member: Member, allocation: Allocation, *, evictable: bool) -> Shares:
        job, slots = self._job(member), allocation.slots_held
        there = job.evictable.discard((slots, allocation.id)) if evictable else job.evictable
        return self._changed(job, Sharer(member, job.held - slots, job.waiting, there))

    def _job(self, member: Member) -> Sharer:
        meter = self.jobs.meter
        return self.jobs.get(member.path) or Sharer(member, 0, SortedMap(meter=meter), SortedMap(meter=meter))

    def _group(self, path: Path) -> Group:
        meter = self.groups.meter
        return self.groups.get(path) or Group(0, SortedMap(meter=meter), SortedMap(meter=meter), SortedMap(meter=meter))

    def _changed(self, before: Sharer, after: Sharer) -> Shares:
        """With a job that has changed, and what follows for its groups."""
        path, more = after.member.path, after.held - before.held
        there = after.held or len(after.waiting)
        changed = replace(self, jobs=self.jobs.set(path, after) if there else self.jobs.discard(path))
        turns, stood = after.turns, before.turns
        if more or turns != stood:
            changed._regroup(self, path[:-1], more, stood, turns)
            if self.known_orders is not None:
                changed._set(known_orders=self.known_orders.after(before, after, self, changed))
        return changed

    def _regroup(
        self, before: Shares, path: Path, more: int, stood: dict[LineKey, Turn], stands: dict[LineKey, Turn]
    ) -> None:
        """With a group of jobs, one of which holds so many slots more than `before` and stands elsewhere in its lines, and with the
        groups around it. Only for shares that are being derived, which nobody else has seen."""
        groups, was = self.groups, before._group(path)
        turns = _turns_with(was.turns, stood, stands) if path else was.turns
        group = Group(was.held + more, _lines_with(was.lines, stood, stands), was.needs, turns)
        while True:
            if group is not was:
                groups = groups.set(path, group) if group.held or group.waits else groups.discard(path)
            if not path:
                break
            need, needs = before._need_of(path, was), self._need_of(path, group)
            path = path[:-1]
            was = group = before._group(path)
            if more or need != needs:
                group = Group(was.held + more, was.lines, _moved(was.needs, need, needs), was.turns)
        self._set(groups=groups)

    def _need_of(self, path: Path, group: Group) -> Need | None:
        if not group.waits:
            return None
        return Need(group.held + (self.used.get(path) or 0.0), group.since, path[-1])

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            force_setattr(self, name, value)


class Orders(Struct, frozen=True, kw_only=True, gc=False):
    """What follows from shares for those who may have to leave.

    `ranks`: the jobs of which something may be preempted, in order. `poor`: the jobs that wait and are in groups, in order.
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
        meter, evictable = shares.jobs.meter, [job for job in shares.jobs.values() if job.smallest]
        sizes = Counter(
            (job.member.parents[: depth + 1], slots)
            for job in evictable
            for slots, _ in job.evictable
            for depth in range(len(job.member.parents))
        )
        groups, of_jobs = {group for group, _ in sizes}, {job.member.parents for job in evictable}
        ranks = (rank for job in evictable if (rank := job.rank) is not None)
        waiting = (poor for job in shares.jobs.values() if (poor := job.poverty) is not None)
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

    def after(self, stood: Sharer, stands: Sharer, before: Shares, after: Shares) -> Orders:
        """When one job has changed."""
        changed = replace(
            self,
            ranks=_moved(self.ranks, stood.rank, stands.rank),
            poor=_moved(self.poor, stood.poverty, stands.poverty),
            sizes=self._counted(stood, stands),
        )
        return changed.graded(stands.member.parents, self, before, after)

    def graded(self, parents: Path, known: Orders, before: Shares, after: Shares) -> Orders:
        """With the groups that a job is in where the orders say now; `known` is where they stood `before`."""
        graded = replace(self)
        for depth in range(len(parents), 0, -1):
            group, jobs = parents[:depth], depth == len(parents)
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
            around, rich = shares.groups.get(group), self.wealth.first_key_from((group,))
            need = None if around is None else around.needs.first_key()
            return (
                need is not None
                and rich is not None
                and rich.parents == group
                and -rich.negative_rest > need.burden + 1
            )
        rank, poorest = self.ranks.first_key_from((group,)), self.poor.first_key_from((group,))
        found = rank is not None and poorest is not None and rank.parents == poorest.parents == group
        return found and rank is not None and poorest is not None and -rank.negative_rest > poorest.charge

    def _counted(self, stood: Sharer, stands: Sharer) -> SortedMap[tuple[Path, int], int]:
        """With what of the job may be preempted since, or no more: all of it has as many slots as are held more or less."""
        more = len(stands.evictable) - len(stood.evictable)
        slots, parents, sizes = abs(stands.held - stood.held), stands.member.parents, self.sizes
        for depth in range(1, len(parents) + 1) if more else ():
            key = (parents[:depth], slots)
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


def _lines_with(lines: Lines, before: dict[LineKey, Turn], after: dict[LineKey, Turn]) -> Lines:
    """A job where it stands after a change."""
    for key, turn in before.items():
        if after.get(key) != turn:
            line = lines[key].discard(turn)
            lines = lines.set(key, line) if len(line) else lines.discard(key)
    for key, turn in after.items():
        if before.get(key) != turn:
            lines = lines.set(key, (lines.get(key) or SortedMap(meter=lines.meter)).set(turn, True))
    return lines


def _turns_with(turns: Turns, before: dict[LineKey, Turn], after: dict[LineKey, Turn]) -> Turns:
    """A job where it stands after a change, in all lines together."""
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        turns = _moved(turns, None if old is None else (old, key), None if new is None else (new, key))
    return turns
