"""What each group of a fair-share pool holds, and the order of its pending jobs: part of the snapshot; an update costs the size of
the change.

A job belongs to a path of groups, from the outermost to the job itself: `(job,)`, or `(workspace, user, job)` with hierarchical
shares. The *charge* of a group is the slots that it would hold with one more, over its weight; vacating slots do not count. With
`usage_half_life`, the recent usage of a workspace or user is added (`domain.usage`). Giving each slot to the smallest charge is
Jefferson's (D'Hondt's) method of apportionment: no group gets less than its share by weight, rounded down, and no two groups can
both gain by trading a slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.sorted_map import Meter, SortedMap

Path = tuple[str, ...]

Place = TypeVar("Place")


NEVER = datetime.max.replace(tzinfo=UTC)
"""Time of a group in which nothing waits."""

USER_DEPTH = 2
"""Length of the path of a user in a workspace."""


class Member(NamedTuple):
    """A job as a member of its groups."""

    job: JobId
    parents: Path
    weight: float

    @property
    def path(self) -> Path:
        return (*self.parents, self.job)


class LineKey(NamedTuple):
    """A line of pending jobs that differ only in what they hold: all are equally feasible, and the poorest comes first."""

    parents: Path
    weight: float
    shape: Shape


class Turn(NamedTuple):
    """The order within a line: the smallest charge first, then the longest wait."""

    charge: float
    since: datetime
    job: JobId


class Rank(NamedTuple):
    """The order of jobs with preemptible allocations: the greatest charge after losing the smallest one first, and of equals the
    smallest loss."""

    parents: Path
    negative_rest: float
    smallest: int
    job: JobId


class PendingRank(NamedTuple):
    """The order of pending jobs in groups: the poorest first."""

    parents: Path
    charge: float
    job: JobId


class GroupRank(NamedTuple):
    """The order of groups with preemptible allocations: the greatest charge after losing the smallest one first."""

    parents: Path
    negative_rest: float
    name: str


class Need(NamedTuple):
    """The order of groups with pending allocations: the poorest first, then the longest wait of the next allocation."""

    burden: float
    since: datetime
    name: str


Lines = SortedMap[LineKey, SortedMap[Turn, bool]]
Heads = SortedMap[tuple[Turn, LineKey], bool]
Waiting = SortedMap[Shape, SortedMap[QueueKey, AllocationId]]

Evictable = tuple[int, float, AllocationId]
"""Slots, likelihood that its search needs it, and id."""


def _as_evictable(allocation: Allocation) -> Evictable:
    return (allocation.slots_held, allocation.worth.likelihood, allocation.id)


class Sharer(Struct, frozen=True, gc=False):
    """A job that holds slots or waits; made by `of`."""

    member: Member
    held: int
    """Slots."""
    waiting: Waiting
    """Its pending allocations."""
    evictable: SortedMap[Evictable, bool]
    """Its preemptible allocations, the smallest first."""
    turns: tuple[tuple[LineKey, Turn], ...]
    """Its position in each line; allocations without slots are not shared."""

    @staticmethod
    def of(member: Member, held: int, waiting: Waiting, evictable: SortedMap[Evictable, bool]) -> Sharer:
        turns: list[tuple[LineKey, Turn]] = []
        if len(waiting):
            job, parents, weight = member
            charge = (held + 1) / weight
            for shape, keys in waiting.items():
                first = keys.first_key()
                if shape.slots > 0 and first is not None:
                    turns.append((LineKey(parents, weight, shape), Turn(charge, first.requested_at, job)))
        return Sharer(member, held, waiting, evictable, tuple(turns))

    @property
    def burden(self) -> float:
        """Slots that the job holds: a job has no charge for past usage."""
        return float(self.held)

    @property
    def smallest(self) -> int:
        """Slots of the smallest preemptible allocation; 0 if there is none."""
        first = self.evictable.first_key()
        return 0 if first is None else first[0]

    @property
    def pending_rank(self) -> PendingRank | None:
        """Its position among pending jobs; all of its turns have its charge. Unused if all jobs are in one group."""
        if not self.turns or not self.member.parents:
            return None
        _, turn = self.turns[0]
        return PendingRank(self.member.parents, turn.charge, turn.job)

    @property
    def rank(self) -> Rank | None:
        """Its position among jobs with preemptible allocations."""
        job, parents, weight = self.member
        smallest = self.smallest
        return Rank(parents, -(self.held - smallest + 1) / weight, smallest, job) if smallest else None

    def waiting_without(self, shape: Shape, key: QueueKey) -> Waiting:
        """`waiting` without that allocation."""
        keys = self.waiting[shape].discard(key)
        return self.waiting.set(shape, keys) if len(keys) else self.waiting.discard(shape)


class Group(Struct, frozen=True, gc=False):
    """Jobs, or groups of them. Sums over the members are stored here, because they are read far more often than they change."""

    held: int
    """Slots."""
    past: float
    """The charge for past usage, in slots."""
    since: datetime | None
    """Since when its next allocation waits: of several with the same charge the longest wait. None when nothing inside waits
    for slots."""
    jobs: SortedMap[JobId, Sharer]
    """Jobs that hold slots or wait, if it is a group of jobs."""
    lines: Lines
    """The pending ones of them."""
    heads: Heads
    """The first of each line, in order."""
    groups: SortedMap[str, Group]
    """Groups with jobs that hold slots or wait, if it is a group of groups."""
    needs: SortedMap[Need, bool]
    """Those of them with jobs that wait for slots, in order."""

    @staticmethod
    def empty(past: float, meter: Meter | None) -> Group:
        nothing: SortedMap[Any, Any] = SortedMap(meter=meter)
        return Group(0, past, None, nothing, nothing, nothing, nothing, nothing)

    @property
    def burden(self) -> float:
        """Slots that it holds, plus the charge for past usage."""
        return self.held + self.past

    @property
    def waits(self) -> bool:
        """Whether a job inside it waits for slots."""
        return self.since is not None

    def need(self, name: str) -> Need | None:
        """Its position among its siblings."""
        return None if self.since is None else Need(self.held + self.past, self.since, name)

    def with_job(self, before: Sharer, after: Sharer) -> Group:
        """The group after a change of a job in it."""
        job, lines, heads, since = after.member.job, self.lines, self.heads, self.since
        jobs = self.jobs.set(job, after) if after.held or len(after.waiting) else self.jobs.discard(job)
        if before.turns != after.turns:
            lines, heads = _moved_in_lines(lines, heads, before.turns, after.turns)
            first = heads.first_key()
            since = None if first is None else first[0].since
        held = self.held + after.held - before.held
        return Group(held, self.past, since, jobs, lines, heads, self.groups, self.needs)

    def with_group(self, name: str, before: Group, after: Group) -> Group:
        """The group after a change of a group in it."""
        there = len(after.jobs) or len(after.groups)
        groups = self.groups.set(name, after) if there else self.groups.discard(name)
        needs = _moved(self.needs, before.need(name), after.need(name))
        first = needs.first_key()
        held, since = self.held + after.held - before.held, None if first is None else first.since
        return Group(held, self.past, since, self.jobs, self.lines, self.heads, groups, needs)


class Shares(Struct, frozen=True, kw_only=True, gc=False):
    """`whole`: the whole pool, as the root group. `used`: the charges of workspaces and users for past usage, in slots."""

    whole: Group
    used: SortedMap[Path, float]
    known_orders: Orders | None = None
    """The computed `orders`; None until they are first read."""

    @staticmethod
    def empty(meter: Meter | None = None) -> Shares:
        return Shares(whole=Group.empty(0.0, meter), used=SortedMap(meter=meter))

    @property
    def orders(self) -> Orders:
        """The orders of possible victims. Computed on first use, and then updated with each derived value: while all allocations
        fit they are not needed."""
        if self.known_orders is None:
            force_setattr(self, "known_orders", Orders.of(self))
        assert self.known_orders is not None, "computed"
        return self.known_orders

    def __eq__(self, other: object) -> bool:
        """Whether the orders are computed already makes no difference."""
        if not isinstance(other, Shares):
            return NotImplemented
        return self.orders == other.orders and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def group(self, path: Path) -> Group:
        """The group at a path; an empty group if nothing in it holds slots or waits. The empty path is the whole pool."""
        group = self.whole
        for name in path:
            inside = group.groups.get(name)
            if inside is None:
                return self._empty_group(path)
            group = inside
        return group

    def groups(self) -> Iterator[tuple[Path, Group]]:
        """All groups with jobs that hold slots or wait, by path, and the whole pool."""
        left: list[tuple[Path, Group]] = [((), self.whole)]
        while left:
            path, group = left.pop()
            yield path, group
            left.extend(((*path, name), inside) for name, inside in group.groups.items())

    def jobs(self) -> Iterator[Sharer]:
        """All jobs that hold slots or wait."""
        for _, group in self.groups():
            yield from group.jobs.values()

    def sharer(self, member: Member) -> Sharer | None:
        """The job as a sharer; None if it neither holds slots nor waits."""
        return self.group(member.parents).jobs.get(member.job)

    def held(self, path: Path) -> int:
        """Slots of a group or a job."""
        return self._holder(path).held

    def charge(self, member: Member) -> float:
        """Charge of the job, without its groups: the slots that it would hold with one more, per weight."""
        return (self.held(member.path) + 1) / member.weight

    def burden(self, path: Path) -> float:
        """What a group or a job holds, plus the charge for past usage."""
        return self._holder(path).burden

    def _holder(self, path: Path) -> Group | Sharer:
        if not path:
            return self.whole
        around, name = self.group(path[:-1]), path[-1]
        return around.jobs.get(JobId(name)) or around.groups.get(name) or self._empty_group(path)

    def _empty_group(self, path: Path) -> Group:
        return Group.empty(self.used.get(path) or 0.0, self.used.meter)

    def since(self, path: Path) -> datetime:
        """Since when the group's next allocation waits; `NEVER` when nothing inside waits for slots."""
        return self.group(path).since or NEVER

    def with_used(self, user: Path, charged: float) -> Shares:
        """The shares after a change of the usage of a user, and so of the user's workspace. The sums are exact: see
        `domain.usage.GRAIN`."""
        more = charged - (self.used.get(user) or 0.0)
        if not more:
            return self
        used, before = self.used, self._around(user)
        for path in (user, user[:1]):
            total = (used.get(path) or 0.0) + more
            used = used.set(path, total) if total else used.discard(path)
        derived = replace(self, used=used)
        for path in (user, user[:1]):
            around = derived._around(path)
            changed = _changed_around(path, around, replace(around[-1], past=used.get(path) or 0.0))
            derived = replace(derived, whole=changed[0])
        if self.known_orders is not None:
            orders = self.known_orders.graded(user, self.known_orders, before, derived._around(user))
            derived = replace(derived, known_orders=orders)
        return derived

    def with_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        around = self._around(member.parents)
        job = around[-1].jobs.get(member.job) or self._empty_sharer(member)
        keys = (job.waiting.get(shape) or SortedMap(meter=self.used.meter)).set(key, key.allocation)
        return self._with_job(around, job, Sharer.of(member, job.held, job.waiting.set(shape, keys), job.evictable))

    def without_waiting(self, member: Member, shape: Shape, key: QueueKey) -> Shares:
        around = self._around(member.parents)
        job = around[-1].jobs[member.job]
        waiting = job.waiting_without(shape, key)
        return self._with_job(around, job, Sharer.of(member, job.held, waiting, job.evictable))

    def with_running(
        self, member: Member, allocation: Allocation, *, evictable: bool, waited: tuple[Shape, QueueKey] | None = None
    ) -> Shares:
        """The shares with an allocation that holds slots and is not vacating. `waited`: its place in the queue until now."""
        around, slots = self._around(member.parents), allocation.slots_held
        job = around[-1].jobs.get(member.job) or self._empty_sharer(member)
        waiting = job.waiting if waited is None else job.waiting_without(*waited)
        there = job.evictable.set(_as_evictable(allocation), True) if evictable else job.evictable
        return self._with_job(around, job, Sharer.of(member, job.held + slots, waiting, there))

    def without_running(self, member: Member, allocation: Allocation, *, evictable: bool) -> Shares:
        around, slots = self._around(member.parents), allocation.slots_held
        job = around[-1].jobs[member.job]
        there = job.evictable.discard(_as_evictable(allocation)) if evictable else job.evictable
        return self._with_job(around, job, Sharer.of(member, job.held - slots, job.waiting, there))

    def _around(self, path: Path) -> list[Group]:
        """The whole pool, the groups on the path, and the group itself."""
        groups = [self.whole]
        for depth, name in enumerate(path, start=1):
            groups.append(groups[-1].groups.get(name) or self._empty_group(path[:depth]))
        return groups

    def _empty_sharer(self, member: Member) -> Sharer:
        nothing: SortedMap[Any, Any] = SortedMap(meter=self.used.meter)
        return Sharer(member, 0, nothing, nothing, ())

    def _with_job(self, around: list[Group], before: Sharer, after: Sharer) -> Shares:
        """The shares after a change of a job, and the consequences for the groups around it."""
        parents = after.member.parents
        changed = _changed_around(parents, around, around[-1].with_job(before, after))
        orders = self.known_orders
        if orders is not None and (before.held != after.held or before.turns != after.turns):
            orders = orders.after(before, after, around, changed)
        return Shares(whole=changed[0], used=self.used, known_orders=orders)


class Orders(Struct, frozen=True, kw_only=True, gc=False):
    """Orders of possible victims, derived from shares.

    `ranks`: the jobs with preemptible allocations, in order. `pending_ranks`: the pending jobs in groups, in order.
    `sizes`: the number of preemptible allocations by group of jobs and slots, and `group_ranks`: these groups in order.
    `uneven`: the groups inside which one member might be preempted for another; in all others none can be."""

    ranks: SortedMap[Rank, bool]
    pending_ranks: SortedMap[PendingRank, bool]
    sizes: SortedMap[tuple[Path, int], int]
    group_ranks: SortedMap[GroupRank, bool]
    uneven: SortedMap[Path, bool]

    @staticmethod
    def of(shares: Shares) -> Orders:
        """The orders of all shares, computed at once."""
        meter, evictable = shares.used.meter, [job for job in shares.jobs() if job.smallest]
        sizes = Counter(
            (job.member.parents[: depth + 1], slots)
            for job in evictable
            for slots, _, _ in job.evictable
            for depth in range(len(job.member.parents))
        )
        groups, of_jobs = {group for group, _ in sizes}, {job.member.parents for job in evictable}
        ranks = (rank for job in evictable if (rank := job.rank) is not None)
        waiting = (poor for job in shares.jobs() if (poor := job.pending_rank) is not None)
        orders = Orders(
            ranks=SortedMap.of(((rank, True) for rank in ranks), meter=meter),
            pending_ranks=SortedMap.of(((poor, True) for poor in waiting), meter=meter),
            sizes=SortedMap.of(sizes.items(), meter=meter),
            group_ranks=SortedMap(meter=meter),
            uneven=SortedMap(meter=meter),
        )
        ranked = (rich for group in groups if (rich := orders._group_rank_of(group, shares.group(group))) is not None)
        orders._set(group_ranks=SortedMap.of(((rich, True) for rich in ranked), meter=meter))
        uneven = (
            (group, True) for group in groups if orders._is_uneven(group, shares.group(group), jobs=group in of_jobs)
        )
        orders._set(uneven=SortedMap.of(uneven, meter=meter))
        return orders

    def after(self, job: Sharer, changed: Sharer, before: Sequence[Group], after: Sequence[Group]) -> Orders:
        """The orders after `job` has become `changed`, and with it the groups around it, from the whole pool to the group of
        jobs."""
        orders = replace(
            self,
            ranks=_moved(self.ranks, job.rank, changed.rank),
            pending_ranks=_moved(self.pending_ranks, job.pending_rank, changed.pending_rank),
            sizes=self._counted(job, changed),
        )
        return orders.graded(changed.member.parents, self, before, after)

    def graded(self, parents: Path, known: Orders, before: Sequence[Group], after: Sequence[Group]) -> Orders:
        """The orders with the groups of a job at their new positions; `known` has their positions `before`."""
        graded = replace(self)
        for depth in range(len(parents), 0, -1):
            path, was, group = parents[:depth], before[depth], after[depth]
            if was.burden != group.burden or known.sizes is not self.sizes:
                rank_before, rank_after = known._group_rank_of(path, was), graded._group_rank_of(path, group)
                graded._set(group_ranks=_moved(graded.group_ranks, rank_before, rank_after))
            uneven = graded._is_uneven(path, group, jobs=depth == len(parents))
            if uneven != (path in graded.uneven):
                graded._set(uneven=graded.uneven.set(path, True) if uneven else graded.uneven.discard(path))
        return graded

    def smallest(self, group: Path) -> int:
        """Slots of the smallest preemptible allocation in the group of jobs; 0 if there is none."""
        found = self.sizes.first_key_from((group, 0))
        return found[1] if found is not None and found[0] == group else 0

    def _group_rank_of(self, path: Path, group: Group) -> GroupRank | None:
        smallest = self.smallest(path)
        return GroupRank(path[:-1], -(group.burden - smallest + 1), path[-1]) if smallest else None

    def _is_uneven(self, path: Path, group: Group, *, jobs: bool) -> bool:
        """Whether a member keeps more than another would have with one more slot; for jobs it may be the same one."""
        if not jobs:
            need, rich = group.needs.first_key(), self.group_ranks.first_key_from((path,))
            return (
                need is not None and rich is not None and rich.parents == path and -rich.negative_rest > need.burden + 1
            )
        rank, poorest = self.ranks.first_key_from((path,)), self.pending_ranks.first_key_from((path,))
        found = rank is not None and poorest is not None and rank.parents == poorest.parents == path
        return found and rank is not None and poorest is not None and -rank.negative_rest > poorest.charge

    def _counted(self, before: Sharer, after: Sharer) -> SortedMap[tuple[Path, int], int]:
        """The sizes with the added or removed preemptible allocations of the job: each has as many slots as the change of what it
        holds."""
        more = len(after.evictable) - len(before.evictable)
        slots, parents, sizes = abs(after.held - before.held), after.member.parents, self.sizes
        for depth in range(1, len(parents) + 1) if more else ():
            key = (parents[:depth], slots)
            count = (sizes.get(key) or 0) + more
            sizes = sizes.set(key, count) if count else sizes.discard(key)
        return sizes

    def _set(self, **values: object) -> None:
        """Sets fields in place, only for orders that are being derived and not shared yet."""
        for name, value in values.items():
            force_setattr(self, name, value)


def _moved(order: SortedMap[Place, bool], old: Place | None, new: Place | None) -> SortedMap[Place, bool]:
    """The order with a member at its new place; None: it has none."""
    if old == new:
        return order
    without = order if old is None else order.discard(old)
    return without if new is None else without.set(new, True)


def _changed_around(path: Path, around: Sequence[Group], inmost: Group) -> list[Group]:
    """The groups `around`, from the whole pool to the one at the path, when that has become `inmost`."""
    changed = [*around[:-1], inmost]
    for depth in range(len(path) - 1, -1, -1):
        changed[depth] = around[depth].with_group(path[depth], around[depth + 1], changed[depth + 1])
    return changed


def _moved_in_lines(
    lines: Lines, heads: Heads, before: Sequence[tuple[LineKey, Turn]], after: Sequence[tuple[LineKey, Turn]]
) -> tuple[Lines, Heads]:
    """The lines and heads with a job at its place after a change."""
    old_turns, new_turns = dict(before), dict(after)
    for key in {**old_turns, **new_turns}:
        old, new = old_turns.get(key), new_turns.get(key)
        if old != new:
            line = lines.get(key) or SortedMap(meter=lines.meter)
            moved = _moved(line, old, new)
            lines = lines.set(key, moved) if len(moved) else lines.discard(key)
            was, head = line.first_key(), moved.first_key()
            heads = _moved(heads, None if was is None else (was, key), None if head is None else (head, key))
    return lines, heads
