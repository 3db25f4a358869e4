"""The fair-share scheduler.

1. Slots go to the group with the smallest charge (see `shares`): among jobs, or, where shares are hierarchical, to a
   workspace, then to one of its users, then to one of the user's jobs. Between equal charges goes who has waited longest. What
   is done for each in turn is told in `placing`. So free slots never lie idle while something fits on them, except those that
   are kept for somebody by name.
2. A waiting allocation makes others leave when they are richer even afterwards: of the two groups in which the jobs differ
   first, the victim's charge without what leaves is greater than what the other will then hold over its weight. So the slots
   settle where weighted max-min fairness puts them, within the size of a gang, and nobody who had to leave can take back what
   he left.
3. The first for which nothing can be done gets a reservation that binds everybody who comes later: a gang that is larger than
   its fair share starts when enough has ended, however many small ones keep coming.
4. With `usage_half_life`, workspaces and users are charged what they have used lately beside what they hold. Charges for the
   past stay as they are from one measurement to the next, so what is said above holds in between.
5. Work without slots is not divided: the earliest first, whatever fits.

Within a line of jobs that differ in nothing but what they hold, what cannot be done for the poorest cannot be done for the
others: a pass reads what it can place or keep, and one allocation of each line that it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.scheduler.eviction import Claim
from resolute_master.scheduler.order import QueueKey
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.placing import Line, Placing
from resolute_master.scheduler.priority import in_queue_order
from resolute_master.scheduler.shares import LineKey, Member, Path, Shares, Turn
from resolute_master.scheduler.snapshot import PoolSnapshot


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    balance = Balance(snapshot)
    placing = Placing(snapshot, balance, preemption=True, soft_reservations=False, starts=starts)
    _poorest_first(snapshot, balance, placing)
    in_queue_order(placing, snapshot.queue.items_from((True,)), lambda _shape, _key: placing.no_place)
    return placing.outcome()


def shares_of(snapshot: PoolSnapshot) -> Shares:
    assert snapshot.shares is not None, "the pool is not divided by fair share"
    return snapshot.shares


class Balance:
    """What each group holds during the pass: with what it was given and promised, without what it has to give back, and with
    what it is charged for its past."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._shares = shares_of(snapshot)
        self._given: dict[Path, int] = {}
        self._taken: dict[Path, int] = {}

    def give(self, member: Member, slots: int) -> None:
        _add(self._given, member.path, slots)

    def charge(self, group: Path, weight: float) -> float:
        """With what was given; what others must leave frees nothing before they have left."""
        return (self._slots(group) + 1) / weight

    def rank(self, parents: Path) -> tuple[tuple[float, str], ...]:
        return tuple((self.charge(parents[: n + 1], 1.0), parents[n]) for n in range(len(parents)))

    # -- who must leave for whom ---------------------------------------------------------------------------------

    def lesser(self, claim: Claim) -> Iterator[Allocation]:
        if self._snapshot.policy.hierarchical_shares:
            return iter(sorted(self._lesser(claim), key=self.importance))
        return self._lesser(claim)

    def _lesser(self, claim: Claim) -> Iterator[Allocation]:
        poor = self._snapshot.member(claim.allocation)
        bound = self._after(poor.path, poor.weight, claim.slots - 1)
        for rank in self._shares.ranks:
            if not rank.parents and -rank.negative_rest <= bound:
                return
            for _, id_ in self._shares.evictable[rank.job]:
                allocation = self._snapshot.allocations[id_]
                if not self.yields(allocation, claim, ()):
                    break  # nor would a larger one of the same job
                yield allocation

    def yields(self, allocation: Allocation, claim: Claim, others: Iterable[Allocation]) -> bool:
        rich, poor = self._snapshot.member(allocation), self._snapshot.member(claim.allocation)
        if rich.job == poor.job:
            return False
        depth = next(n for n in range(len(rich.path)) if rich.path[n] != poor.path[n]) + 1
        last = depth == len(rich.path)
        loss, gain = -len(allocation.held_slots), claim.slots - 1
        for other in others:
            path = self._snapshot.member(other).path[:depth]
            loss -= len(other.held_slots) if path == rich.path[:depth] else 0
            gain -= len(other.held_slots) if path == poor.path[:depth] else 0
        left = self._after(rich.path[:depth], rich.weight if last else 1.0, loss)
        return left > self._after(poor.path[:depth], poor.weight if last else 1.0, gain)

    def _after(self, group: Path, weight: float, change: int) -> float:
        """The charge after a change, and after what must leave has left."""
        # One division: equal charges are equal numbers, whatever they are made of.
        return (self._slots(group) - self._taken.get(group, 0) + change + 1) / weight

    def _slots(self, group: Path) -> float:
        return self._shares.burden(group) + self._given.get(group, 0)

    def importance(self, allocation: Allocation) -> tuple[float, ...]:
        member = self._snapshot.member(allocation)
        mine = self._shares.evictable.get(member.job)
        smallest = None if mine is None else mine.first_key()
        charges = (-self._after(member.path[: n + 1], 1.0, 0) for n in range(len(member.parents)))
        return (*charges, -self._after(member.path, member.weight, -smallest[0] if smallest else 0))

    def last_resort(self, allocation: Allocation) -> float:
        return -allocation.requested_at.timestamp()

    def left(self, victims: Iterable[Allocation]) -> None:
        for victim in victims:
            _add(self._taken, self._snapshot.member(victim).path, len(victim.held_slots))

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """By the groups in which the two differ first."""
        mine, lesser = self._snapshot.member(claim.allocation), self._snapshot.member(victim)
        depth = next(n for n in range(len(mine.path)) if mine.path[n] != lesser.path[n])
        level = ("workspace", "user", "job")[-len(mine.path) :][depth]
        by_weight = depth == len(mine.parents)
        first, second = (
            f"{self._shares.held.get(m.path[: depth + 1]) or 0}{unit}{self._past(m.path[: depth + 1])}"
            + (f" at weight {m.weight:g}" if by_weight else "")
            for m, unit in ((mine, " slot(s)"), (lesser, ""))
        )
        return f"whose {level} {mine.path[depth]} holds {first}, against {second}"

    def _past(self, group: Path) -> str:
        used = self._shares.used.get(group)
        return "" if used is None else f" and is charged {used:g} for the past"


def _add(sums: dict[Path, int], path: Path, slots: int) -> None:
    for depth in range(1, len(path) + 1):
        sums[path[:depth]] = sums.get(path[:depth], 0) + slots


class _Order(NamedTuple):
    """Where a line stands: the charges of the groups around it, then its poorest job's turn."""

    parents: tuple[tuple[float, str], ...]
    turn: Turn


class _Sharers:
    """One line during the pass: its jobs, the poorest first, each with what it waits with."""

    def __init__(self, snapshot: PoolSnapshot, balance: Balance, key: LineKey) -> None:
        self.key = key
        self.line = Line(key.shape, Verdict.PLACED)
        self._shares = shares_of(snapshot)
        self._balance = balance
        self._source = iter(self._shares.lines[key])
        self._ahead = next(self._source, None)
        self._moved: list[Turn] = []
        self._rest: dict[JobId, Iterator[QueueKey]] = {}
        self._next: dict[JobId, QueueKey] = {}

    def member(self, job: JobId) -> Member:
        return Member(job, self.key.parents, self.key.weight)

    def order(self) -> _Order | None:
        """None when nobody is left. Turns that have become outdated in this pass are put where they belong."""
        while (turn := self._first()) is not None:
            charge = self._balance.charge(self.member(turn.job).path, self.key.weight)
            if charge == turn.charge:
                return _Order(self._balance.rank(self.key.parents), turn)
            self._drop()
            heappush(self._moved, turn._replace(charge=charge))
        return None

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
        """What the job is to be offered for next."""
        if job not in self._next:
            self._rest[job] = iter(self._shares.waiting[job][self.key.shape])
            self._next[job] = next(self._rest[job])
        return self._next[job]

    def offered(self, turn: Turn) -> None:
        """The job's first has had its turn."""
        self._drop()
        following = next(self._rest[turn.job], None)
        if following is not None:
            self._next[turn.job] = following
            heappush(self._moved, turn._replace(since=following.requested_at))


def _poorest_first(snapshot: PoolSnapshot, balance: Balance, placing: Placing) -> None:
    """Offer to the smallest charge until no line is left for which something can be done."""
    heap: list[tuple[_Order, int, _Sharers]] = []
    for number, key in enumerate(shares_of(snapshot).lines):
        sharers = _Sharers(snapshot, balance, key)
        order = sharers.order()
        assert order is not None, "a line that is kept has somebody in it"
        heap.append((order, number, sharers))
    heapify(heap)
    while heap and not placing.full:
        known, number, sharers = heap[0]
        order = sharers.order()
        if order is None:
            heappop(heap)
        elif order != known:
            heapreplace(heap, (order, number, sharers))
        elif placing.offer(sharers.line, sharers.first(order.turn.job)) >= Verdict.RESERVED:
            heappop(heap)
        else:
            balance.give(sharers.member(order.turn.job), sharers.key.shape.slots)
            sharers.offered(order.turn)
