"""The fair-share scheduler.

1. Slots go to the group with the smallest charge (see `shares`): among jobs, or, where shares are hierarchical, to a
   workspace, then to one of its users, then to one of the user's jobs. Between equal charges goes who has waited longest. What
   is done for each in turn is told in `placing`. So free slots never lie idle while something fits on them, except those that
   are kept for somebody by name.
2. A waiting allocation makes others leave when they are richer even afterwards: of the two groups in which the jobs differ
   first, the victim's charge without what leaves is greater than what the other will then hold over its weight. So the slots
   settle where weighted max-min fairness puts them, within the size of a gang, and nobody who had to leave can take back what
   he left.
   Who was asked to leave counts for nobody from then on, in this pass as in the next: what he leaves beyond what he was made to
   leave for goes to those who lost it, when they are the poorest now, before somebody else has to move for them.
3. The first for which nothing can be done gets a reservation that binds everybody who comes later: a gang that is larger than
   its fair share starts when enough has ended, however many small ones keep coming.
4. With `usage_half_life`, workspaces and users are charged what they have used lately beside what they hold. Charges for the
   past stay as they are from one measurement to the next, so what is said above holds in between.
5. Work without slots is not divided: the earliest first, whatever fits.

Within a line of jobs that differ in nothing but what they hold, what cannot be done for the poorest cannot be done for the
others: a pass reads what it can place or keep, and one allocation of each line that it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from typing import Any, NamedTuple

from resolute_master.domain.ids import JobId
from resolute_master.scheduler.balance import Balance, shares_of
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.placing import Line, Placing
from resolute_master.scheduler.priority import in_queue_order
from resolute_master.scheduler.shares import LineKey, Member, Path, Turn
from resolute_master.scheduler.snapshot import PoolSnapshot


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    balance = Balance(snapshot)
    placing = Placing(snapshot, balance, preemption=True, soft_reservations=False, starts=starts)
    _poorest_first(snapshot, balance, placing)
    in_queue_order(placing, snapshot.queue.items_from((True,)), lambda _shape, _key: placing.no_place)
    return placing.outcome()


class _Sharers:
    """One line during the pass: its jobs, the poorest first, each with what it waits with.

    Where a job stands follows from its charge. What became richer is put where it belongs when it is met, what
    became poorer at once.
    """

    def __init__(self, snapshot: PoolSnapshot, balance: Balance, key: LineKey, line: Line) -> None:
        self.key = key
        self.line = line
        self._shares = shares_of(snapshot)
        self._balance = balance
        self._source = iter(self._shares.lines[key.parents][key])
        self._ahead = next(self._source, None)
        self._moved: list[Turn] = []
        self._turns: dict[JobId, Turn | None] = {}
        """Of jobs that do not stand where the snapshot says; None when nothing of them is left."""
        self._rest: dict[JobId, Iterator[QueueKey]] = {}
        self._next: dict[JobId, QueueKey] = {}
        self.over = False
        """Nothing can be done for any of them."""
        for job in balance.losers(key.parents):
            self.poorer(job)

    def member(self, job: JobId) -> Member:
        return Member(job, self.key.parents, self.key.weight)

    def order(self) -> Turn | None:
        """None when nobody is left."""
        while not self.over and (turn := self._first()) is not None:
            if self._turns.get(turn.job, turn) != turn:
                self._drop()  # the job stands elsewhere now
                continue
            charge = self._charge(turn.job)
            if charge == turn.charge:
                return turn
            self._drop()
            self._put(turn._replace(charge=charge))
        return None

    def poorest(self) -> _Sharers | None:
        return self

    def poorer(self, job: JobId) -> None:
        """Something of the job must leave; it may wait in another line."""
        waits = self._shares.waiting.get(job)
        if waits is not None and self.key.shape in waits and self._turns.get(job, True) is not None:
            self._put(Turn(self._charge(job), self.first(job).requested_at, job))

    def _charge(self, job: JobId) -> float:
        return self._balance.charge(self.member(job).path, self.key.weight)

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
        """What the job is to be offered for next."""
        if job not in self._next:
            self._rest[job] = iter(self._shares.waiting[job][self.key.shape])
            self._next[job] = next(self._rest[job])
        return self._next[job]

    def offered(self, turn: Turn) -> None:
        """The job's first has had its turn."""
        self._drop()
        self._turns[turn.job] = None
        following = next(self._rest[turn.job], None)
        if following is not None:
            self._next[turn.job] = following
            self._put(turn._replace(since=following.requested_at))


class _Charge(NamedTuple):
    """Where a group stands among its like."""

    charge: float
    name: str


class _Groups:
    """What is inside a group during the pass, the poorest first: its groups, or the lines of its jobs."""

    def __init__(
        self, snapshot: PoolSnapshot, balance: Balance, placing: Placing, path: Path, sharers: list[Path]
    ) -> None:
        """`sharers`: the groups of jobs inside in which somebody waits, in order."""
        self.path = path
        self._snapshot = snapshot
        self._balance = balance
        self._placing = placing
        self._sharers = sharers
        self._members: list[_Groups | _Sharers] = []
        self._numbers: dict[str | LineKey, int] = {}
        """Of the members: of groups by name, of lines by key."""
        self._orders: dict[int, _Charge | Turn] = {}
        """Of the members of which somebody is left, when they were last looked at."""
        self._heap: list[tuple[_Charge | Turn, int]] | None = None
        """Of these; those that say otherwise are outdated."""

    def order(self) -> _Charge | None:
        """None when nobody inside is left."""
        if self._heap is not None and self.poorest() is None:
            return None
        return _Charge(self._balance.charge(self.path, 1.0), self.path[-1])

    def poorest(self) -> _Sharers | None:
        """The line that is next."""
        if self._heap is None:
            self._open()
        heap, orders = self._heap or [], self._orders
        while heap:
            known, number = heap[0]
            if orders.get(number) != known:
                heappop(heap)
                continue
            order = self._members[number].order()
            if order is None:
                heappop(heap)
                del orders[number]
            elif order != known:
                orders[number] = order
                heapreplace(heap, (order, number))
            elif (line := self._members[number].poorest()) is not None:
                return line
        return None

    def poorer(self, member: Member, shapes: Iterable[Shape]) -> None:
        """Something of a job inside must leave, which waits with other `shapes`: it may be its turn, and that of its groups."""
        if self._heap is None:
            return
        depth = len(self.path)
        if depth < len(member.parents):
            self._moved(member.parents[depth], lambda groups: groups.poorer(member, shapes))
        else:
            for shape in shapes:
                self._moved(LineKey(member.parents, member.weight, shape), lambda line: line.poorer(member.job))

    def _moved(self, name: str | LineKey, tell: Callable[[Any], None]) -> None:
        number = self._numbers.get(name)
        if number is None or number not in self._orders:
            return
        tell(self._members[number])
        order = self._members[number].order()
        if order is not None and order != self._orders[number]:
            assert self._heap is not None, "it was looked into"
            self._orders[number] = order
            heappush(self._heap, (order, number))

    def _line(self, key: LineKey) -> _Sharers:
        return _Sharers(self._snapshot, self._balance, key, self._placing.line(key.shape))

    def _hopeful(self, key: LineKey) -> bool:
        """There may be something to be done for one of the line."""
        return not self._placing.hopeless(key.shape) or self._balance.may_claim(
            key.parents, key.weight, key.shape.slots, key.shape.where
        )

    def _worthwhile(self) -> bool:
        """There may be something to be done for one inside."""
        if not self._placing.all_hopeless:
            return True
        least, may_claim = self._placing.least_slots, self._balance.may_claim
        return any(may_claim(sharers, self._greatest_weight(sharers), least) for sharers in self._sharers)

    def _greatest_weight(self, sharers: Path) -> float:
        return max(key.weight for key in shares_of(self._snapshot).lines[sharers])

    def _open(self) -> None:
        self._heap, depth = [], len(self.path)
        if not self._worthwhile():
            return
        for name, sharers in groupby(self._sharers, key=lambda parents: parents[depth : depth + 1]):
            if name:
                path = (*self.path, *name)
                self._add(name[0], _Groups(self._snapshot, self._balance, self._placing, path, list(sharers)))
            else:
                for key in shares_of(self._snapshot).lines[self.path]:
                    if self._hopeful(key):
                        self._add(key, self._line(key))
        self._heap = [(order, number) for number, order in self._orders.items()]
        heapify(self._heap)

    def _add(self, name: str | LineKey, member: _Groups | _Sharers) -> None:
        number = self._numbers[name] = len(self._members)
        self._members.append(member)
        order = member.order()
        if order is not None:
            self._orders[number] = order


def _poorest_first(snapshot: PoolSnapshot, balance: Balance, placing: Placing) -> None:
    """Offer to the smallest charge until no line is left for which something can be done."""
    shares = shares_of(snapshot)
    whole = _Groups(snapshot, balance, placing, (), shares.lines.key_list())
    while not placing.full and (sharers := whole.poorest()) is not None:
        turn = sharers.order()
        assert turn is not None, "a line that is next has somebody in it"
        if placing.offer(sharers.line, sharers.first(turn.job)) >= Verdict.RESERVED:
            sharers.over = True
        else:
            balance.give(sharers.member(turn.job), sharers.key.shape.slots)
            sharers.offered(turn)
        for member in balance.have_lost():
            whole.poorer(member, list(shares.waiting.get(member.job) or ()))
