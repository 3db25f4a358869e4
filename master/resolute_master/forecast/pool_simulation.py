"""One run of the simulation: arrivals, boots, ends, refusals and interruptions; each moment ends with one decision.

Times are seconds from the simulation's epoch. Work progresses only while it holds slots. A run that resumes from a checkpoint first
takes `restart_s`. A preempted run saves for `save_s` and loses nothing. A run whose machine has a notice saves, trains on, and
saves again before the end of the machine (`resolute.grace_period`). Without a notice it returns to its last periodic checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from resolute import grace_period
from resolute.wire.states import AllocationState
from resolute_master.decision.view import Progress
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, InstanceId, allocation_id
from resolute_master.forecast.decide import Decider
from resolute_master.forecast.market import Market, Refused
from resolute_master.forecast.pool import Decision, Ends, VirtualPool
from resolute_master.forecast.work import Bill, Fate, Overheads, Work
from resolute_provisioner.model import Cause, InstanceView, Termination

LEAST_PAID_S = 60.0
"""Least time that clouds charge for a machine."""

MOST_DECISIONS_A_MOMENT = 1000
"""Maximum number of decisions at one moment: a decider that never settles has a fault, and would make the simulation endless."""


class SimulationStuck(RuntimeError):
    """Raised if work waits and no possible event would start it, or if the decisions do not settle."""


class NoProgress(SimulationStuck):
    """Raised if there was no progress for longer than the simulation waits for its market."""


class _Kind(IntEnum):
    """The order of the events of one moment."""

    END = 0
    LEFT = 1
    TAKEN = 2
    MARKET = 3
    REFUSED = 4
    JOINED = 5
    SUBMIT = 6
    SAVED = 7
    REVISIT = 8


@dataclass(slots=True, kw_only=True)
class PoolSimulation:
    """Call `run`; afterwards `works`, `bills` and `log` contain the results."""

    pool: VirtualPool
    decider: Decider
    market: Market
    epoch: datetime
    overheads: Overheads = field(default_factory=Overheads)
    stopwatch: Callable[[], float] = lambda: 0.0
    """Measures the time of decisions; it has no effect on them."""
    ended: Callable[[Work], None] = lambda work: None
    """Called for each piece of work that has ended."""
    log: Callable[[float, str, str], None] = lambda at_s, word, subject: None
    """Called for every decision and event: time, event, subject."""
    standing: int = 0
    """Number of machines that stay when no work is left: the simulation does not wait for their end, and they are paid until its
    own."""
    lasts_s: float = 0.0
    """Minimum duration: until then machines that stay are paid, whether or not work is left."""
    progress_timeout_s: float = math.inf
    """If nothing runs and there is no progress for longer, pending work counts as stuck: the moves of a market never end."""
    works: dict[AllocationId, Work] = field(default_factory=dict)
    """Work, by the allocation of its present run."""
    bills: dict[InstanceId, Bill] = field(default_factory=dict)
    decision_s: float = 0.0
    decisions: int = 0
    launches: int = 0
    now_s: float = 0.0
    _events: list[tuple[float, int, int, Any]] = field(default_factory=list)
    _count: int = 0
    _waiting: int = 0
    _unsubmitted: int = 0
    _got_ahead_s: float = 0.0
    """The last time at which work was submitted, ended or saved its progress."""

    def __post_init__(self) -> None:
        self.pool.progress_of = self._progress_of

    # -- from outside ------------------------------------------------------------------------------------------

    def submit(self, works: Iterable[Work]) -> None:
        for work in works:
            self._unsubmitted += 1
            self._at(work.submit_s, _Kind.SUBMIT, work)

    def adopt(self, work: Work) -> None:
        """Adds work that is in the pool already: it is pending, or runs since `started_s`."""
        self.works[work.first.id] = work
        if work.started_s is None:
            self._waiting += 1
        elif work.first.leaving:
            self._leave(work.first.id)
        else:
            self._at(max(self.now_s, self._end_of(work)), _Kind.END, work.first.id)

    def expect(self, instance: InstanceId, at_s: float) -> None:
        """Adds the join of a starting machine."""
        self._at(at_s, _Kind.JOINED, instance)

    def run(self, until: Callable[[], bool] = lambda: False, *, strict: bool = True) -> None:
        """Runs until no work is left and no machine but those that stay, or no event is left but moves of the market, or
        `until` says so after a decision. Raises `SimulationStuck`; if not `strict`, not for work that is left when nothing
        happens."""
        self._expect_market(-1.0)
        self._decide()
        while self._events and not until():
            if self._done():
                break
            self.now_s = self._events[0][0]
            self.pool.now = self.time(self.now_s)
            moved = False
            while self._events and self._events[0][0] == self.now_s:
                _, kind, _, subject = heappop(self._events)
                moved |= self._happen(_Kind(kind), subject)
            if moved:
                self._decide()
            self._check_progress()
        if not strict or until():
            return
        self.now_s = max(self.now_s, self.lasts_s)
        for id_ in sorted(self.pool.machines):
            self._gone(id_, "end of the simulation", taken=False)
        if self._waiting:
            raise SimulationStuck(f"{self._waiting} gang(s) wait for ever: no machine of the pool can hold them")

    def time(self, at_s: float) -> datetime:
        return self.epoch + timedelta(seconds=at_s)

    def cost_until(self, bill: Bill, at_s: float) -> None:
        """Adds a machine's cost up to a moment, at the price since the last call."""
        price = self.market.price(bill.offer_id, bill.priced_s) or 0.0
        bill.cost += price * max(0.0, at_s - bill.priced_s) / 3600.0
        bill.priced_s = at_s

    # -- what happens ------------------------------------------------------------------------------------------

    def _done(self) -> bool:
        if self._unsubmitted or self.works:
            return False
        if len(self.pool.machines) <= self.standing:
            return self.now_s >= self.lasts_s or not self.pool.machines
        return all(kind is _Kind.MARKET for _, kind, _, _ in self._events)

    def _check_progress(self) -> None:
        nothing_runs = self._waiting > 0 and self._waiting == len(self.works)
        if nothing_runs and self.now_s - self._got_ahead_s > self.progress_timeout_s:
            raise NoProgress(
                f"{self._waiting} gang(s) are pending at second {self.now_s:.0f}, without progress since second "
                f"{self._got_ahead_s:.0f}: the available capacity is never sufficient, or never for long enough"
            )

    def _happen(self, kind: _Kind, subject: Any) -> bool:
        """Whether the event requires a decision."""
        match kind:
            case _Kind.SUBMIT:
                self._submitted(subject)
            case _Kind.END:
                return self._ended(subject)
            case _Kind.LEFT:
                return self._left(subject)
            case _Kind.JOINED:
                return self._joined(subject)
            case _Kind.REFUSED:
                self._refused(*subject)
            case _Kind.TAKEN:
                return self._taken(subject)
            case _Kind.MARKET:
                return self._market_moved()
            case _Kind.SAVED:
                return self._has_saved(subject)
            case _Kind.REVISIT:
                return bool(subject == self.decisions)  # a later decision has set a time of its own
        return True

    def _submitted(self, work: Work) -> None:
        self._unsubmitted -= 1
        self._waiting += 1
        self._got_ahead_s = self.now_s
        work.queued_s = self.now_s
        self.works[work.first.id] = work
        self.pool.submitted(work.job, work.first, max_cost=work.max_cost)

    def _ended(self, id_: AllocationId) -> bool:
        work = self.works.get(id_)
        if work is None or work.started_s is None or self.pool.snapshot.allocations[id_].leaving:
            return False
        self._finish(id_, work)
        return True

    def _finish(self, id_: AllocationId, work: Work) -> None:
        self._got_ahead_s = self.now_s
        self._held(id_, work)
        work.done_s, work.started_s = work.length_s, None
        self.pool.ended(id_)
        self._over(id_, work, Fate.COMPLETED)

    def _over(self, id_: AllocationId, work: Work, fate: Fate) -> None:
        """Ends a job whose last run has ended, or that gets no further run."""
        del self.works[id_]
        work.ended_s, work.fate = self.now_s, fate
        self._conclude(work)

    def _conclude(self, work: Work) -> None:
        """Records the end of a job; its subscribers are notified."""
        self.pool.job_ended(work.job)
        self.ended(work)

    def _end_waiting(self, id_: AllocationId, fate: Fate) -> None:
        self._waiting -= 1
        work = self.works[id_]
        work.waited_s += self.now_s - work.queued_s
        self.pool.ended(id_)
        self._over(id_, work, fate)

    def _left(self, id_: AllocationId) -> bool:
        """Ends a run that has saved all its work."""
        work = self.works.get(id_)
        if work is None or work.started_s is None:
            return False
        asked_at = self.pool.snapshot.allocations[id_].preempt
        asked_s = self.now_s if asked_at is None else (asked_at.requested_at - self.epoch).total_seconds()
        self.pool.left(id_)
        self._cut(id_, work, self._progress(work, asked_s + work.trained_on_s))
        return True

    def _cut(self, id_: AllocationId, work: Work, kept_s: float) -> None:
        """Ends a run; another one is pending, which continues with the kept work."""
        last = self.pool.snapshot.allocations[id_]
        self._held(id_, work)
        self.pool.ended(id_)
        work.done_s = min(work.length_s, work.done_s + kept_s)
        work.started_s = None
        if kept_s > 0.0:
            self._got_ahead_s = self.now_s
        if work.done_s >= work.length_s or work.job.id in self.pool.stopped:
            self._over(id_, work, Fate.COMPLETED if work.done_s >= work.length_s else Fate.STOPPED)
            return
        del self.works[id_]
        again = replace(
            work.first,
            id=allocation_id(work.first.task_id, work.runs + 1),
            run_id=work.runs + 1,
            requested_at=self.pool.now,
            state=AllocationState.PENDING,
            containers=(),
            preempt=None,
            reserved_agents=(),
            saved_at=None,
            evictions=last.evictions_by_now,
        )
        self.works[again.id] = work
        work.queued_s = self.now_s
        self._waiting += 1
        self.pool.requeued(again, last)

    def _held(self, id_: AllocationId, work: Work) -> None:
        """Ends a run and releases its slots."""
        held = self.pool.snapshot.allocations[id_].containers
        work.held.append((work.started_s or 0.0, self.now_s))
        work.held_on.append(tuple((str(each.agent), len(each.slots)) for each in held))
        self.log(self.now_s, "end", id_)

    def _joined(self, id_: InstanceId) -> bool:
        if id_ not in self.pool.machines:
            return False
        self.log(self.now_s, "join", id_)
        if id_ in self.bills:
            self.bills[id_].joined_s = self.now_s
        self.pool.joined(id_)
        return True

    def _refused(self, asked: InstanceView, answer: Refused) -> None:
        self.log(self.now_s, "refused", asked.instance_id)
        self.pool.refused(asked, answer.kind, answer.message)

    def _expect_market(self, after_s: float) -> None:
        at_s = self.market.next_move(after_s)
        if at_s is not None:
            self._at(at_s, _Kind.MARKET, None)

    def _market_moved(self) -> bool:
        self._expect_market(self.now_s)
        alive: dict[str, list[InstanceId]] = {}
        for id_, view in self.pool.machines.items():
            if view.notice is None and id_ in self.bills:
                alive.setdefault(view.offer_id, []).append(id_)
        priced = [bill for id_, bill in self.bills.items() if id_ in self.pool.machines]
        move = self.market.move(self.now_s, alive)
        if move.prices:
            for bill in priced:
                self.cost_until(bill, self.now_s)
        for offer_id, price in move.prices:
            self.pool.repriced(offer_id, price)
        for id_ in move.taken:
            self._announce(id_)
        return bool(move.taken or move.prices)

    def _announce(self, id_: InstanceId) -> None:
        notice_s = self.overheads.notice_s
        self.log(self.now_s, "notice", id_)
        if notice_s <= 0.0:
            self._taken(id_)
            return
        for allocation in self.pool.noticed(id_, self.time(self.now_s + notice_s)):
            self.works[allocation].interruptions += 1
            self._train_on(allocation)
        self._at(self.now_s + notice_s, _Kind.TAKEN, id_)

    def _taken(self, id_: InstanceId) -> bool:
        if id_ not in self.pool.machines:
            return False
        self._gone(id_, "taken back", taken=True)
        return True

    def _gone(self, id_: InstanceId, cause: str, *, taken: bool) -> None:
        for allocation in self.pool.gone(id_, taken=taken):
            work = self.works.get(allocation)
            if work is None:
                self.pool.ended(allocation)
                continue
            asked = self.pool.snapshot.allocations[allocation].preempt
            if asked is None:
                work.interruptions += 1
            self._cut(allocation, work, self._saved(work))
        bill = self.bills.get(id_)
        if bill is None:
            return  # its launch was not answered yet
        self.market.ended(bill.offer_id)
        bill.ended_s, bill.cause = self.now_s, cause
        self.cost_until(bill, max(self.now_s, bill.launched_s + LEAST_PAID_S))
        self.log(self.now_s, cause, id_)

    # -- what is decided ---------------------------------------------------------------------------------------

    def _decide(self) -> None:
        for _ in range(MOST_DECISIONS_A_MOMENT):
            self._end(self.pool.fall_due())
            begun = self.stopwatch()
            decision = self.decider.decide(self.pool)
            self.decision_s += self.stopwatch() - begun
            self.decisions += 1
            self._carry_out(decision)
            self.pool.book()
            if not decision.unfinished:
                break
        else:
            raise SimulationStuck(f"the decisions do not settle at {self.now_s:.0f} s")
        moments = [at for at in (decision.revisit_at, self.pool.due()) if at is not None]
        if moments:
            at_s = (min(moments) - self.epoch).total_seconds()
            self._at(max(at_s, self.now_s), _Kind.REVISIT, self.decisions)

    def _end(self, ends: Ends) -> None:
        """Ends allocations because of the limits of accounts."""
        for allocation in ends.asked:
            self.log(self.now_s, "limit", allocation)
            self._leave(allocation)
        for allocation in ends.stopped:
            self.log(self.now_s, "stop", allocation)
            self._end_waiting(allocation, Fate.STOPPED)
        for allocation in ends.killed:
            self.log(self.now_s, "kill", allocation)
            work = self.works[allocation]
            self._cut(allocation, work, self._saved(work))

    def _carry_out(self, decision: Decision) -> None:
        for placement in decision.place:
            self._start(placement.allocation)
            self.log(self.now_s, "start", f"{placement.allocation} {','.join(placement.agents)}")
        for preemption in decision.preempt:
            self.log(self.now_s, "preempt", preemption.allocation)
            self._leave(preemption.allocation)
        for refused in decision.unaffordable:
            self._end(self.pool.refuse(refused))
        for failing in decision.give_ups:
            self.log(self.now_s, "give up", failing.allocation)
            self._end_waiting(failing.allocation, Fate.FAILED)
        asked = self.pool.apply_launches(decision.launches)
        for id_, launch in zip(asked, decision.launches, strict=True):
            self.log(self.now_s, "launch", f"{id_} {launch.offer_id}")
            self._ask(id_, launch.offer_id)
        for termination in decision.terminations:
            self._terminate(termination)

    def _start(self, id_: AllocationId) -> None:
        work = self.works[id_]
        self._waiting -= 1
        work.waited_s += self.now_s - work.queued_s
        work.started_s, work.trained_on_s = self.now_s, 0.0
        if work.first_start_s is None:
            work.first_start_s = self.now_s
        work.runs += 1
        self._expect_end(id_, work)
        self._expect_checkpoint(id_, work)

    def _train_on(self, id_: AllocationId) -> None:
        """Work with a notice saves, trains until it is done or has to leave, and saves."""
        work, save_s = self.works[id_], self.overheads.save_s
        trained_s = grace_period.trained_s(self.overheads.notice_s, save_s)
        if trained_s <= 0.0:
            self._leave(id_)
            return
        left_s = self._end_of(work) - self.now_s
        work.trained_on_s = min(trained_s, left_s)
        self._at(self.now_s + work.trained_on_s + 2 * save_s, _Kind.LEFT, id_)

    def _leave(self, id_: AllocationId) -> None:
        self._at(self.now_s + self.overheads.save_s, _Kind.LEFT, id_)

    def _ask(self, id_: InstanceId, offer_id: str) -> None:
        answer = self.market.ask(offer_id, self.now_s)
        if isinstance(answer, Refused):
            self._at(self.now_s + answer.after_s, _Kind.REFUSED, (self.pool.machines[id_], answer))
            return
        self.launches += 1
        self.pool.launched(id_)
        self.bills[id_] = Bill(
            instance=id_,
            offer_id=offer_id,
            slots=self.pool.machines[id_].slots,
            launched_s=self.now_s,
            priced_s=self.now_s,
        )
        self._at(self.now_s + answer.boot_s, _Kind.JOINED, id_)

    def _terminate(self, termination: Termination) -> None:
        id_ = InstanceId(termination.instance_id)
        if termination.drain:
            for allocation in self.pool.drain(termination):
                self._leave(allocation)
            self.log(self.now_s, "drain", id_)
            return
        self.pool.ordered_to_end(termination)
        self._gone(id_, termination.cause.value, taken=termination.cause is Cause.LOST)

    # -- within ------------------------------------------------------------------------------------------------

    def _progress(self, work: Work, until_s: float) -> float:
        """Work of the present run until then, beyond what was saved before, in seconds."""
        if work.started_s is None:
            return 0.0
        restart_s = self.overheads.restart_s if work.runs > 1 else 0.0
        return min(max(0.0, until_s - work.started_s - restart_s), work.length_s - work.done_s)

    def _saved(self, work: Work) -> float:
        """Part of the present run that is in a periodic checkpoint, in seconds."""
        done_s, before, every_s = self._progress(work, self.now_s), work.done_s, self.overheads.checkpoint_every_s
        return max(0.0, (before + done_s) // every_s * every_s - before)

    def _progress_of(self, id_: AllocationId) -> Progress | None:
        work = self.works.get(id_)
        if work is None:
            return None
        submitted_at = self.time(work.submit_s)
        if work.known_s is None:
            return Progress(submitted_at=submitted_at, total_s=None)
        done_s = self._progress(work, self.now_s)
        unsaved_s = done_s - self._saved(work)
        done = work.begun + (work.done_s + done_s) / work.known_s if work.known_s else 1.0
        saved = done - unsaved_s / work.known_s if work.known_s else 1.0
        return Progress(
            submitted_at=submitted_at,
            total_s=work.known_s,
            saved=min(1.0, saved),
            done=min(1.0, done),
            unsaved_s=unsaved_s,
        )

    def _expect_checkpoint(self, id_: AllocationId, work: Work) -> None:
        """Schedules the first checkpoint of the run, after which it may be moved. A pool that moves nothing needs none."""
        every_s, saves = self.overheads.checkpoint_every_s, self.pool.moves_work
        if not saves or work.started_s is None:
            return
        first_s = (work.done_s // every_s + 1) * every_s - work.done_s
        if first_s < work.length_s - work.done_s:
            restart_s = self.overheads.restart_s if work.runs > 1 else 0.0
            self._at(work.started_s + restart_s + first_s, _Kind.SAVED, id_)

    def _has_saved(self, id_: AllocationId) -> bool:
        work = self.works.get(id_)
        if work is None or work.started_s is None:
            return False
        self.pool.saved(id_)
        return True

    def _expect_end(self, id_: AllocationId, work: Work) -> None:
        self._at(self._end_of(work), _Kind.END, id_)

    def _end_of(self, work: Work) -> float:
        restart_s = self.overheads.restart_s if work.runs > 1 else 0.0
        return (work.started_s or 0.0) + restart_s + work.length_s - work.done_s

    def _at(self, at_s: float, kind: _Kind, subject: Any) -> None:
        heappush(self._events, (at_s, kind, self._next(), subject))

    def _next(self) -> int:
        self._count += 1
        return self._count


EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Simulations of a trace begin here."""
