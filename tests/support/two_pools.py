"""One pool twice: in a live master's memory, cycle by cycle, and as a virtual pool. Both receive every event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from resolute.errors import ResoluteError
from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import AllocationState, ContainerState, NoticeKind
from resolute_master.decision.plan import PoolPlan
from resolute_master.decision.plan_pool import plan_pool
from resolute_master.decision.view import Progress
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Entity
from resolute_master.domain.commands import (
    AcknowledgePreemption,
    Command,
    CreateExperiment,
    CreateUser,
    KillExperiment,
    MasterStarted,
    RecordLaunch,
    RecordObservation,
    RecordRefusal,
    RegisterAgent,
    ReportContainer,
    ReportNotice,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, ExperimentId, InstanceId, PoolName, UserId, allocation_id
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.machines import PriceWord, RecordPrices
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine import cycle
from resolute_master.engine.memory import Memory
from resolute_master.forecast.pool import Decision, Ends, VirtualPool
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.model import Intent, Observed, RefusalKind
from support.cluster import T0, device
from support.engines import a_config

POOL = PoolName("default")
SOURCE = "the trace"

ASKED_AGAIN = 6
"""Maximum number of plans at one time. Both pools plan again after a plan with changes, because a live pool plans more often (after
reports of containers and of launches) than a virtual one."""


def changes(plan: PoolPlan) -> bool:
    """Whether the plan changes anything."""
    return bool(
        plan.starts
        or plan.preempt
        or plan.reserve
        or plan.launches
        or plan.endings
        or plan.give_ups
        or plan.unaffordable
    )


@dataclass(slots=True)
class TwoPools:
    """`live` and `virtual` contain the plans with changes, in order."""

    policy: PoolPolicy
    decide: Callable[[Any], PoolPlan] = plan_pool
    """The decider of the virtual pool."""
    now: datetime = T0
    live: list[PoolPlan] = field(default_factory=list)
    virtual: list[PoolPlan] = field(default_factory=list)
    memory: Memory = field(init=False)
    pool: VirtualPool = field(init=False)
    _first: dict[AllocationId, Allocation] = field(default_factory=dict)
    """The request of each open allocation."""
    _asked: list[InstanceId] = field(default_factory=list)
    """Launches without a response, in order."""
    _recorded: list[Instance] = field(default_factory=list)
    """Launches of the live pool that are missing in the virtual one."""
    _seen: set[InstanceId] = field(default_factory=set)
    _estimates: dict[str, Progress] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self.memory = Memory(ClusterState(), {POOL: self.policy}, sequence=0, digest="", now=self.now)
        self.pool = VirtualPool.empty(self.policy, self.now)
        self.pool.progress_of = lambda id_: self._estimates.get(self._first[id_].job_id)
        self._both(MasterStarted(version="1"), CreateUser(username="ada", password_hash="hash"))

    # -- events ------------------------------------------------------------------------------------------------

    def submit(
        self,
        *,
        priority: int = 42,
        deadline_s: float | None = None,
        estimate_s: int = 3600,
        max_cost: float | None = None,
        **shape: Any,
    ) -> None:
        resources: dict[str, Any] = {} if max_cost is None else {"max_cost": max_cost}
        if deadline_s is not None:
            resources["deadline"] = (self.now + timedelta(seconds=deadline_s)).isoformat()
        config = a_config(**shape, **resources) | {"estimated_duration": f"{estimate_s}s"}
        if deadline_s is not None:
            config["resources"] |= {"estimated_duration": f"{estimate_s}s"}
        command = CreateExperiment(
            owner=UserId(1),
            config=config,
            original_config="",
            context_hash="",
            pool=POOL,
            priority=priority,
            weight=1.0,
            max_slots=None,
            seed=7,
            activate=True,
        )
        (written, *_) = self._live(command)
        (job,) = [each for each in written if isinstance(each, Job)]
        (allocation,) = [each for each in written if isinstance(each, Allocation) and each.job_id == job.id]
        job = replace(job, ended=False)  # A pool that has given up may have failed it already.
        first = _waiting_again(allocation, allocation.id, self.now, 0)
        self._first[first.id] = first
        if deadline_s is not None:
            self._estimates[job.id] = Progress(submitted_at=job.submitted_at, total_s=float(estimate_s))
        self.pool.submitted(job.as_scheduled, first, max_cost=max_cost)
        self._virtual()

    def launched(self, rng: Random) -> None:
        """The cloud grants one of the requested machines."""
        for id_ in self._one(rng, self._asked):
            self._asked.remove(id_)
            self.pool.launched(id_)
            self._both(
                RecordLaunch(instance=id_, provider_id=id_, observed=Observed.RUNNING, paid_from=self.now),
            )

    def refused(self, rng: Random) -> None:
        for id_ in self._one(rng, self._asked):
            self._asked.remove(id_)
            kind = rng.choice((RefusalKind.NO_CAPACITY, RefusalKind.QUOTA_EXCEEDED, RefusalKind.TRANSIENT))
            self.pool.refused(self.pool.machines[id_], kind, "none")
            self._both(RecordRefusal(instance=id_, kind=kind, message="none"))

    def joined(self, rng: Random) -> None:
        booting = [id_ for id_, each in self.pool.machines.items() if each.launched_at and each.joined_at is None]
        for id_ in self._one(rng, booting):
            self.pool.joined(id_)
            self._both(
                RegisterAgent(
                    agent=AgentId(id_),
                    pool=POOL,
                    incarnation="first",
                    devices=tuple(device(index) for index in range(self.pool.machines[id_].slots)),
                    address="",
                    version="0",
                    instance=id_,
                    reports=(),
                )
            )

    def noticed(self, rng: Random, notice_s: float = 120.0) -> None:
        there = [id_ for id_, each in self.pool.machines.items() if each.joined_at is not None and each.notice is None]
        for id_ in self._one(rng, there):
            deadline = self.now + timedelta(seconds=notice_s)
            self.pool.noticed(id_, deadline)
            self._both(
                ReportNotice(
                    agent=AgentId(id_), incarnation="first", kind=NoticeKind.INTERRUPTION, deadline=deadline, reason=""
                )
            )

    def taken(self, rng: Random) -> None:
        for id_ in self._one(rng, [id_ for id_, each in self.pool.machines.items() if each.launched_at is not None]):
            others = self._ends_beside(id_)
            for allocation in self.pool.gone(id_, taken=True):
                self._cut(allocation)
            gone = RecordObservation(
                instance=id_, provider_id=id_, observed=Observed.GONE, paid_from=None, paid_until=self.now
            )
            self._both(gone, *others)

    def left(self, rng: Random) -> None:
        """A preempted run has saved and ended."""
        leaving = [each.id for each in self.pool.snapshot.allocations.values() if each.leaving]
        for id_ in self._one(rng, leaving):
            commands = [AcknowledgePreemption(allocation=id_), *self._ends_of(id_)]
            self.pool.left(id_)
            self._cut(id_)
            self._both(*commands)

    def finished(self, rng: Random) -> None:
        """A run completes, and its job with it."""
        running = [each.id for each in self.pool.snapshot.allocations.values() if each.containers and not each.leaving]
        for id_ in self._one(rng, running):
            number = ExperimentId(int(id_.partition(".")[0]))
            commands = [KillExperiment(experiment=number), *self._ends_of(id_)]
            self._over(id_)
            self._both(*commands)

    def repriced(self, rng: Random) -> None:
        for offer in self._one(rng, [each for each in self.pool.offers.values() if each.price_moves]):
            price = round((offer.price_per_hour or 1.0) * rng.uniform(0.4, 2.5), 3)
            self.pool.repriced(offer.offer_id, price)
            word = PriceWord(offer_id=offer.offer_id, per_hour=price, as_of=self.now)
            self._both(RecordPrices(pool=POOL, source=SOURCE, prices=(word,)))

    def later(self, seconds: float) -> None:
        """Advances time; each pool stops at its next decision."""
        until = self.now + timedelta(seconds=seconds)
        while True:
            wakes = [self.memory.next_wake(), self._virtual_wake()]
            then = min((at for at in wakes if at is not None and self.now < at <= until), default=None)
            if then is None:
                break
            self.now = then
            self._both()
        self.now = self.pool.now = until

    # -- the live one ------------------------------------------------------------------------------------------

    def _both(self, *commands: Command) -> None:
        self._live(*commands)
        self._virtual()

    def _live(self, *commands: Command) -> list[tuple[Entity, ...]]:
        """Runs cycles until nothing is due. Ordered ends happen before the next decision, and starts are immediate. Returns the
        decisions of each cycle."""
        batch = list(commands)
        written: list[tuple[Entity, ...]] = []
        begun = len(self.live)
        for _ in range(200):
            before = len(self.live)
            self.memory.scaled.clear()  # The engine's cache of plans is not part of the rules.
            with _recorded(self.live):
                self._number += 1
                outcome = cycle.Cycle(self.memory, now=self.now, entropy=str(self._number)).run(batch)
            assert not [reply for reply in outcome.replies if isinstance(reply, ResoluteError)], outcome.replies
            if outcome.change is not None:
                self.memory.absorb(outcome.change, outcome.snapshots, outcome.digest)
                written.append(tuple(outcome.change.upserts))
                new = [
                    each for each in outcome.change.upserts if isinstance(each, Instance) and each.id not in self._seen
                ]
                self._recorded += sorted(new, key=lambda each: int(each.id.split("-")[1]))
                self._seen.update(each.id for each in new)
            batch = [*self._gone(), *self._begun()]
            if before < len(self.live) < begun + ASKED_AGAIN:
                self.memory.due_pools.add(POOL)
            wake = self.memory.next_wake()
            if not batch and (wake is None or wake > self.now):
                return written
        raise AssertionError("the live pool does not come to rest")

    def _gone(self) -> Iterator[Command]:
        for instance in self.memory.state.all(Instance):
            if instance.intent is Intent.STOP and not instance.over:
                paid_until = None if instance.paid_from is None else self.now
                yield RecordObservation(
                    instance=instance.id,
                    provider_id=instance.id,
                    observed=Observed.GONE,
                    paid_from=None,
                    paid_until=paid_until,
                )
                yield from self._ends_beside(instance.id)

    def _ends_beside(self, id_: InstanceId) -> list[Command]:
        """Parts of the machine's gangs on other machines, which end with it."""
        here = self.memory.state.find(Allocation, "allocations_on_agent", AgentId(id_))
        return [
            self._report(container.agent, container.id, ContainerState.TERMINATED, Exit(code=0))
            for allocation in here
            for container in allocation.containers
            if not (container.ended or allocation.ended or container.agent == id_)
        ]

    def _begun(self) -> Iterator[Command]:
        for allocation in self.memory.state.all(Allocation):
            for container in allocation.containers:
                if container.state is ContainerState.ASSIGNED and not allocation.leaving:
                    yield self._report(container.agent, container.id, ContainerState.RUNNING)
                elif allocation.killed_at is not None and not container.ended:
                    yield self._report(container.agent, container.id, ContainerState.TERMINATED, Exit(code=0))

    def _ends_of(self, id_: AllocationId) -> list[Command]:
        allocation = self.memory.state.get(Allocation, id_)
        assert allocation is not None
        return [
            self._report(container.agent, container.id, ContainerState.TERMINATED, Exit(code=0))
            for container in allocation.containers
            if not container.ended
        ]

    def _report(self, agent: AgentId, container: Any, state: ContainerState, exit_: Exit | None = None) -> Command:
        known = self.memory.state.get(Agent, agent)
        self._number += 1
        report = ContainerReport(
            container_id=container, allocation_id="", state=state, sequence=self._number, at=self.now, exit=exit_
        )
        return ReportContainer(agent=agent, incarnation=known.incarnation if known else "", report=report)

    # -- the virtual one ---------------------------------------------------------------------------------------

    def _virtual_wake(self) -> datetime | None:
        moments = [self.pool.due(), None if not self.virtual_revisit else self.virtual_revisit[-1]]
        return min((at for at in moments if at is not None and at > self.now), default=None)

    virtual_revisit: list[datetime] = field(default_factory=list)
    """Time of the next decision."""

    def _virtual(self) -> None:
        self.pool.now, begun = self.now, len(self.virtual)
        for _ in range(200):
            killed = self._end(self.pool.fall_due())
            plan = self.decide(self.pool.view())
            if changes(plan):
                self.virtual.append(plan)
            self.virtual_revisit = [plan.revisit_at] if plan.revisit_at is not None else []
            self._apply(plan)
            self.pool.book()
            for id_ in killed:
                self._cut(id_)  # The report of its end follows the decision.
            again = changes(plan) and len(self.virtual) < begun + ASKED_AGAIN
            if not (killed or again or Decision.of(plan).unfinished):
                return
        raise AssertionError("the virtual pool does not come to rest")

    def _apply(self, plan: PoolPlan) -> None:
        pool = self.pool
        pool.apply_schedule(plan.starts, plan.preempt, plan.reserve)
        for refused in plan.unaffordable:
            self._end(pool.refuse(refused))
        for failing in plan.give_ups:
            self._over(failing.allocation)
        launched = pool.apply_launches(plan.launches)
        for id_ in launched:
            live = self._recorded.pop(0)  # Both use the same names.
            view = pool.machines.pop(id_)
            pool.machines[live.id] = replace(view, instance_id=live.id, token=live.token, observed=Observed.UNKNOWN)
            self._asked.append(live.id)
        pool.machines = dict(sorted(pool.machines.items()))
        for end in plan.endings:
            if end.drain:
                pool.drain(end)
                continue
            id_ = InstanceId(end.instance_id)
            pool.ordered_to_end(end)
            if id_ in self._asked:
                self._asked.remove(id_)
            for allocation in pool.gone(id_, taken=False):
                self._cut(allocation)

    def _end(self, ends: Ends) -> tuple[AllocationId, ...]:
        """The killed runs."""
        for id_ in ends.stopped:
            self._over(id_)
        return ends.killed

    def _cut(self, id_: AllocationId) -> None:
        """Ends the run. Another one is pending unless its job was stopped."""
        before, first = self.pool.snapshot.allocations[id_], self._first[id_]
        if first.job_id in self.pool.stopped:
            self._over(id_)
            return
        self.pool.ended(id_)
        del self._first[id_]
        again = _waiting_again(first, allocation_id(first.task_id, first.run_id + 1), self.now, before.evictions_by_now)
        self._first[again.id] = again
        self.pool.requeued(again, before)

    def _over(self, id_: AllocationId) -> None:
        first = self._first.pop(id_)
        job = self.pool.snapshot.jobs[first.job_id]
        self.pool.ended(id_)
        self.pool.job_ended(job)

    @staticmethod
    def _one(rng: Random, among: list[Any]) -> list[Any]:
        return [rng.choice(among)] if among else []


def _waiting_again(allocation: Allocation, id_: AllocationId, now: datetime, evictions: int) -> Allocation:
    """The original request of an allocation."""
    return replace(
        allocation,
        id=id_,
        run_id=int(id_.rpartition(".")[2]),
        requested_at=now,
        state=AllocationState.PENDING,
        containers=(),
        assigned_at=None,
        started_at=None,
        preempt=None,
        reserved_agents=(),
        price_per_hour=None,
        price_moves=False,
        ports={},
        history=(),
        evictions=evictions,
    )


class _recorded:
    """Records the plans of live cycles during the context."""

    def __init__(self, plans: list[PoolPlan]) -> None:
        self._plans = plans

    def __enter__(self) -> None:
        def recording(*arguments: Any, **more: Any) -> PoolPlan:
            plan = plan_pool(*arguments, **more)
            if changes(plan):
                self._plans.append(plan)
            return plan

        self._kept = cycle.plan_pool
        cycle.plan_pool = recording  # type: ignore[attr-defined]

    def __exit__(self, *error: object) -> None:
        cycle.plan_pool = self._kept  # type: ignore[attr-defined]
