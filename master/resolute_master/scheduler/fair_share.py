"""The fair-share scheduler.

1. Slots go to the group with the smallest charge (see `shares`): among jobs, or, with hierarchical shares, to a workspace, then to
   one of its users, then to one of the user's jobs. A tie goes to the allocation that has waited longest; of groups, to the one
   whose next allocation has. `placing` describes the steps for each allocation. So no free slot is idle while an allocation fits
   on it, except slots that are held for a named allocation.
2. A pending allocation preempts others that are richer even afterwards: of the two groups in which the jobs first differ, the
   victim's charge without the victim is greater than what the other group will then hold over its weight. So the slots settle
   at weighted max-min fairness, within the size of a gang, and a victim's group cannot take the slots back, unless it has lost
   more to a third group since.
   Victims count for no group from then on, in this pass as in the next: slots that they free beyond the need go to the groups
   that lost them, if these are the poorest now, before further preemptions for them.
3. The first infeasible allocation gets a reservation that binds every later one: a gang that is larger than its fair share starts
   when enough has ended, however many small ones keep arriving.
4. With `usage_half_life`, workspaces and users are charged their recent usage in addition to what they hold. Charges for past
   usage are constant between two measurements, so the rules above hold in between.
5. Allocations without slots are not shared: the earliest that fits starts first.

In a line of jobs that differ only in what they hold, a step that fails for the poorest fails for the others: a pass reads the
allocations that it can place or hold something for, and one allocation of each other line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from resolute_master.domain.ids import JobId
from resolute_master.scheduler.balance import Balance, shares_of
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.placing import Line, Placing
from resolute_master.scheduler.priority import in_queue_order
from resolute_master.scheduler.shares import USER_DEPTH, LineKey, Member, Need, Path, Turn
from resolute_master.scheduler.snapshot import PoolSnapshot


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    balance = Balance(snapshot)
    placing = Placing(snapshot, balance, preemption=True, soft_reservations=False, starts=starts)
    _poorest_first(snapshot, balance, placing)
    in_queue_order(placing, snapshot.queue.items_from((True,)), lambda _shape, _key: placing.no_place)
    return placing.outcome()


class _Sharers:
    """One line during the pass: its jobs, the poorest first, each with its pending allocations.

    The charge of a job determines its position. A job that became richer moves when it is reached, one that became poorer
    at once.
    """

    def __init__(self, snapshot: PoolSnapshot, balance: Balance, key: LineKey, line: Line) -> None:
        self.key = key
        self.line = line
        self._shares = shares_of(snapshot)
        self._balance = balance
        self._source = iter(self._shares.group(key.parents).lines[key])
        self._ahead = next(self._source, None)
        self._moved: list[Turn] = []
        self._turns: dict[JobId, Turn | None] = {}
        """Turns of jobs that have moved since the snapshot; None when nothing of them is left."""
        self._rest: dict[JobId, Iterator[QueueKey]] = {}
        self._next: dict[JobId, QueueKey] = {}
        self.over = False
        """Whether all of them are infeasible."""
        for member in balance.losers(key.parents).values():
            self.poorer(member)

    def member(self, job: JobId) -> Member:
        return Member(job, self.key.parents, self.key.weight)

    def order(self) -> Turn | None:
        """The position of the line; None when no job is left."""
        while not self.over and (turn := self._first()) is not None:
            if self._turns.get(turn.job, turn) != turn:
                self._drop()  # the job has moved
                continue
            charge = self._charge(turn.job)
            if charge == turn.charge:
                return turn
            self._drop()
            self._put(turn._replace(charge=charge))
        return None

    def poorest(self) -> _Sharers | None:
        return self

    def poorer(self, member: Member) -> None:
        """A job of the same group has a victim; the job may wait in another line, of its weight and another shape."""
        job, sharer = member.job, self._shares.sharer(member)
        if member.weight != self.key.weight or sharer is None or self.key.shape not in sharer.waiting:
            return
        if self._turns.get(job, True) is not None:
            self._put(Turn(self._charge(job), self.first(job).requested_at, job))

    def _charge(self, job: JobId) -> float:
        return self._balance.charge((*self.key.parents, job), self.key.weight)

    def _put(self, turn: Turn) -> None:
        self._turns[turn.job] = turn
        heappush(self._moved, turn)

    def _first(self) -> Turn | None:
        if self._ahead is not None and (not self._moved or self._ahead <= self._moved[0]):
            return self._ahead
        return self._moved[0] if self._moved else None

    def _drop(self) -> None:
        if self._ahead is not None and (not self._moved or self._ahead <= self._moved[0]):
            self._ahead = next(self._source, None)
        else:
            heappop(self._moved)

    def first(self, job: JobId) -> QueueKey:
        """The next allocation of the job to offer."""
        if job not in self._next:
            self._rest[job] = iter(self._shares.group(self.key.parents).jobs[job].waiting[self.key.shape])
            self._next[job] = next(self._rest[job])
        return self._next[job]

    def offered(self, turn: Turn) -> None:
        """The job's first allocation was offered."""
        self._drop()
        self._turns[turn.job] = None
        following = next(self._rest[turn.job], None)
        if following is not None:
            self._next[turn.job] = following
            self._put(turn._replace(since=following.requested_at))


class _Charge(NamedTuple):
    """The order of a group among its siblings."""

    charge: float
    since: datetime
    """Since when its next allocation waits."""
    name: str


class _Groups:
    """The members of a group during the pass, the poorest first: its groups, or the lines of its jobs.

    Groups that have not changed in this pass are read in the order of the snapshot, as far as they may be feasible.
    """

    def __init__(self, snapshot: PoolSnapshot, balance: Balance, placing: Placing, path: Path) -> None:
        self.path = path
        self._snapshot = snapshot
        self._shares = shares_of(snapshot)
        self._depth = USER_DEPTH if snapshot.policy.hierarchical_shares else 0
        """Levels of groups above the jobs."""
        self._balance = balance
        self._placing = placing
        self._source: Iterator[Need] | None = None
        """The groups inside, in the order of the snapshot. None: not read yet."""
        self._ahead: Need | None = None
        self._members: dict[str | LineKey, _Groups | _Sharers] = {}
        """Groups by name, lines by key."""
        self._orders: dict[str | LineKey, _Charge | Turn] = {}
        """Orders of the members with pending allocations, when they were last read."""
        self._heap: list[tuple[_Charge | Turn, str | LineKey]] = []
        """Heap of these orders. Entries that differ from `_orders` are outdated."""

    def order(self) -> _Charge:
        """If it was read, call it right after `poorest`: its first may be infeasible, and its next is another one then."""
        since = self._shares.since(self.path) if self._source is None or not self._heap else self._heap[0][0].since
        return _Charge(self._balance.charge(self.path, 1.0), since, self.path[-1])

    def poorest(self) -> _Sharers | None:
        """The line that is next; None when nothing inside is left."""
        orders, heap = self._orders, self._heap
        while (first := self._first()) is not None:
            known, name = first
            if orders.get(name) != known:
                heappop(heap)
                continue
            member = self._members[name]
            line = member.poorest()
            order = None if line is None else member.order()
            if order is None:
                heappop(heap)
                del orders[name]
            elif order != known:
                orders[name] = order
                heapreplace(heap, (order, name))
            else:
                return line
        return None

    def poorer(self, member: Member, shapes: Iterable[Shape]) -> None:
        """A job inside has a victim and waits with other `shapes`: it may be its turn, and that of its groups."""
        if self._source is None:
            return
        depth = len(self.path)
        if depth == len(member.parents):
            for shape in shapes:
                key = LineKey(member.parents, member.weight, shape)
                line = self._members.get(key)
                if isinstance(line, _Sharers):
                    line.poorer(member)
                    self._put(key)
            return
        name = member.parents[depth]
        if name not in self._members and self._shares.group(member.parents[: depth + 1]).waits:
            self._add(name)
        groups = self._members.get(name)
        if isinstance(groups, _Groups):
            groups.poorer(member, shapes)
            self._put(name)

    def _put(self, name: str | LineKey) -> None:
        """Move it to its current position, unless nothing of it is left."""
        known, member = self._orders.get(name), self._members[name]
        if isinstance(member, _Groups) and member._source is not None:
            member.poorest()
        order = member.order()
        if known is not None and order is not None and order != known:
            self._orders[name] = order
            heappush(self._heap, (order, name))

    def _first(self) -> tuple[_Charge | Turn, str | LineKey] | None:
        """The first of the heap, after earlier members were added."""
        if self._source is None:
            self._look_into()
        heap = self._heap
        while (need := self._ahead) is not None:
            if need.name not in self._members:
                if heap and heap[0] < (_Charge(need.burden + 1, need.since, need.name), need.name):
                    break
                if not self._may_be_feasible(need):
                    self._ahead = None
                    self._add_uneven()
                    break
                self._add(need.name)
            assert self._source is not None, "it was looked into"
            self._ahead = next(self._source, None)
        return heap[0] if heap else None

    def _may_be_feasible(self, need: Need) -> bool:
        """A group that is as poor or richer may be feasible by victims outside its own group."""
        if not self._placing.all_infeasible:
            return True
        return self._balance.may_claim_outside((*self.path, need.name), self._placing.least_slots)

    def _add_uneven(self) -> None:
        """Add the groups inside which one member may be preempted for another."""
        depth, least = len(self.path), (*self.path, "")
        while (found := self._shares.orders.uneven.first_key_from(least)) is not None and found[:depth] == self.path:
            if found[depth] not in self._members:
                self._add(found[depth])
            least = (*self.path, found[depth] + "\0")  # the smallest name after it

    def _look_into(self) -> None:
        infeasible, least = self._placing.all_infeasible, self._placing.least_slots
        group = self._shares.group(self.path)
        if len(self.path) < self._depth:
            self._source = iter(group.needs)
            self._ahead = next(self._source, None)
            for name in self._balance.losers(self.path):
                if self._shares.group((*self.path, name)).waits:
                    self._add(name)
            return
        self._source = iter(())
        if infeasible and not self._balance.may_claim_inside(self.path, least):
            return
        for key in group.lines:
            if not self._placing.infeasible(key.shape) or self._balance.may_claim(key):
                self._add(key)

    def _add(self, name: str | LineKey) -> None:
        snapshot, balance, placing = self._snapshot, self._balance, self._placing
        member: _Groups | _Sharers
        if isinstance(name, LineKey):
            member = _Sharers(snapshot, balance, name, placing.line(name.shape))
        else:
            member = _Groups(snapshot, balance, placing, (*self.path, name))
        self._members[name] = member
        order = member.order()
        if order is not None:
            self._orders[name] = order
            heappush(self._heap, (order, name))


def _poorest_first(snapshot: PoolSnapshot, balance: Balance, placing: Placing) -> None:
    """Offer to the smallest charge until no feasible line is left."""
    shares = shares_of(snapshot)
    whole = _Groups(snapshot, balance, placing, ())
    while not placing.full and (sharers := whole.poorest()) is not None:
        turn = sharers.order()
        assert turn is not None, "a line that is next is not empty"
        if placing.offer(sharers.line, sharers.first(turn.job)) >= PlacementResult.RESERVED:
            sharers.over = True
        else:
            balance.give(sharers.member(turn.job), sharers.key.shape.slots)
            sharers.offered(turn)
        for member in balance.have_lost():
            sharer = shares.sharer(member)
            whole.poorer(member, () if sharer is None else list(sharer.waiting))
