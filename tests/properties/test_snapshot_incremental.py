"""A snapshot that was derived event by event equals one that is built from scratch, and older ones stay as they were."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resolute.wire.states import ContainerState, NoticeKind
from resolute_master.domain.agent import Agent, MachineNotice
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, JobId, PoolName, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.usage import GRAIN, Usage, usage_id
from resolute_master.domain.worth import Worth
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import ComingMachine, Supply
from support.pools import NOW, a_job, a_policy, an_agent, closed, gone, leaving, on, placed, waiting

AGENTS = st.sampled_from(["a", "b", "c", "d"])
JOBS = st.sampled_from(["j1", "j2", "j3"])
TASKS = st.sampled_from([f"t{i}" for i in range(8)])
POLICIES = st.sampled_from(
    [
        a_policy(preemption=True),
        a_policy(scheduler=SchedulerKind.FAIR_SHARE),
        a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True),
        a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, usage_half_life_s=3600.0),
    ]
)
POLICY = a_policy(preemption=True)


class Derived(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.agents: dict[AgentId, Agent] = {}
        self.jobs: dict[JobId, Job] = {}
        self.allocations: dict[AllocationId, Allocation] = {}
        self.usage: dict[str, Usage] = {}
        self.supply, self.now = Supply(), NOW
        self.policy = POLICY
        self.snapshot = PoolSnapshot.build(self.policy, now=NOW)
        self.older: list[tuple[PoolSnapshot, PoolSnapshot]] = []

    @initialize(policy=POLICIES)
    def decide_by(self, policy: PoolPolicy) -> None:
        self.policy = policy
        self.snapshot = PoolSnapshot.build(policy, now=NOW)

    def put(self, entity: Agent | Job | Allocation) -> None:
        match entity:
            case Agent():
                self.agents[entity.id] = entity
            case Job():
                self.jobs[entity.id] = entity
            case Allocation():
                self.allocations[entity.id] = entity
        self.snapshot = self.snapshot.after(entity)

    # -- agents ------------------------------------------------------------------------------------------------

    @rule(name=AGENTS, slots=st.integers(0, 4), off=st.sets(st.integers(0, 3)), draining=st.booleans())
    def register(self, name: str, slots: int, off: set[int], draining: bool) -> None:
        self.put(an_agent(name, slots, off=tuple(off), draining=draining))

    @rule(name=AGENTS, enabled=st.booleans(), lost=st.booleans(), noticed=st.booleans(), elsewhere=st.booleans())
    def change_agent(self, name: str, enabled: bool, lost: bool, noticed: bool, elsewhere: bool) -> None:
        if (agent := self.agents.get(AgentId(name))) is not None:
            notice = MachineNotice(kind=NoticeKind.INTERRUPTION, deadline=None, reason="", received_at=NOW)
            agent = replace(
                agent, enabled=enabled, disconnected_at=NOW if lost else None, notice=notice if noticed else None
            )
            self.put(replace(agent, pool=PoolName("other") if elsewhere else POLICY.name))

    @rule(name=AGENTS, indices=st.sets(st.integers(0, 3), max_size=2), draining=st.booleans())
    def close_slots(self, name: str, indices: set[int], draining: bool) -> None:
        """Whatever runs on them."""
        if (agent := self.agents.get(AgentId(name))) is not None:
            self.put(closed(agent, *indices, draining=draining))

    @rule(name=AGENTS)
    def forget_agent(self, name: str) -> None:
        self.agents.pop(AgentId(name), None)
        self.snapshot = self.snapshot.without_agent(AgentId(name))

    # -- jobs --------------------------------------------------------------------------------------------------

    @rule(
        name=JOBS,
        priority=st.integers(40, 43),
        second=st.integers(0, 3),
        cap=st.sampled_from([None, 2, 5]),
        weight=st.sampled_from([1.0, 2.0]),
        owner=st.integers(1, 2),
    )
    def put_job(self, name: str, priority: int, second: int, cap: int | None, weight: float, owner: int) -> None:
        self.put(a_job(name, priority=priority, second=second, max_slots=cap, weight=weight, owner=UserId(owner)))

    @rule(name=JOBS)
    def end_job(self, name: str) -> None:
        if (job := self.jobs.get(JobId(name))) is not None:
            self.put(replace(job, ended=True))

    # -- allocations -------------------------------------------------------------------------------------------

    @rule(
        task=TASKS,
        job=JOBS,
        slots=st.integers(0, 6),
        single=st.booleans(),
        safe=st.booleans(),
        blocked=st.sets(AGENTS, max_size=1),
    )
    def ask(self, task: str, job: str, slots: int, single: bool, safe: bool, blocked: set[str]) -> None:
        agents = tuple(AgentId(name) for name in sorted(blocked))
        allocation = waiting(task, job, slots, single_node=single, preemptible=safe, blocked_agents=agents)
        if allocation.id not in self.allocations:
            self.put(allocation)

    @rule()
    def follow_the_plan(self) -> None:
        plan = schedule(self.snapshot)
        for placement in plan.place:
            self.put(placed(self.allocations[placement.allocation], placement, self.now))
        for preemption in plan.preempt:
            self.put(leaving(self.allocations[preemption.allocation]))

    @rule(task=TASKS, first=AGENTS, second=AGENTS, slots=st.sets(st.integers(0, 3), max_size=3))
    def recall(self, task: str, first: str, second: str, slots: set[int]) -> None:
        """A restart: something runs of which nobody here has decided where, on slots that may not even exist."""
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(on(allocation, {first: tuple(slots), second: ()}))

    @rule(task=TASKS, ago=st.integers(0, 50))
    def save(self, task: str, ago: int) -> None:
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(replace(allocation, saved_at=self.now - timedelta(seconds=ago)))

    @rule(task=TASKS, times=st.integers(0, 2))
    def remember_evictions(self, task: str, times: int) -> None:
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(replace(allocation, evictions=times))

    @rule(task=TASKS, likelihood=st.sampled_from([0.0, 0.25, 1.0]), rung=st.integers(0, 1), score=st.integers(0, 1))
    def rank(self, task: str, likelihood: float, rung: int, score: int) -> None:
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(replace(allocation, worth=Worth(likelihood=likelihood, rung=rung, score=float(score))))

    @rule(task=TASKS)
    def let_leave(self, task: str) -> None:
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(leaving(allocation))

    @rule(task=TASKS)
    def end_one_container(self, task: str) -> None:
        allocation = self.allocations.get(AllocationId(f"{task}.1"))
        if allocation is not None and allocation.containers:
            first, *others = allocation.containers
            self.put(replace(allocation, containers=(replace(first, state=ContainerState.TERMINATED), *others)))

    @rule(task=TASKS)
    def end(self, task: str) -> None:
        if (allocation := self.allocations.get(AllocationId(f"{task}.1"))) is not None:
            self.put(gone(allocation))

    @rule(task=TASKS)
    def forget(self, task: str) -> None:
        self.allocations.pop(AllocationId(f"{task}.1"), None)
        self.snapshot = self.snapshot.without_allocation(AllocationId(f"{task}.1"))

    # -- usage -------------------------------------------------------------------------------------------------

    @rule(workspace=st.integers(1, 2), owner=st.integers(1, 2), grains=st.integers(0, 200), elsewhere=st.booleans())
    def measure(self, workspace: int, owner: int, grains: int, elsewhere: bool) -> None:
        pool = PoolName("other") if elsewhere else POLICY.name
        usage = Usage.none_yet(pool, workspace, UserId(owner), now=self.now)
        self.usage[usage.id] = replace(usage, charged=grains * GRAIN)
        self.snapshot = self.snapshot.with_usage(self.usage[usage.id])

    @rule(workspace=st.integers(1, 2), owner=st.integers(1, 2))
    def forget_usage(self, workspace: int, owner: int) -> None:
        if (usage := self.usage.pop(usage_id(POLICY.name, workspace, UserId(owner)), None)) is not None:
            self.snapshot = self.snapshot.without_usage(usage)

    # -- the rest ----------------------------------------------------------------------------------------------

    @rule(machines=st.integers(0, 2), later=st.integers(0, 5))
    def time_and_supply(self, machines: int, later: int) -> None:
        coming = tuple(ComingMachine(instance=InstanceId(f"i{n}"), slots=4) for n in range(machines))
        self.supply, self.now = Supply(machines=coming), self.now + timedelta(seconds=later)
        self.snapshot = self.snapshot.with_supply(self.supply).at(self.now)

    @rule()
    def keep_a_copy(self) -> None:
        self.older.append((self.snapshot, self.built()))

    def built(self) -> PoolSnapshot:
        """From scratch, from entities in another order."""
        return PoolSnapshot.build(
            self.policy,
            reversed(self.agents.values()),
            reversed(self.jobs.values()),
            reversed(self.allocations.values()),
            self.supply,
            usage=reversed(self.usage.values()),
            now=self.now,
        )

    @invariant()
    def equals_one_built_from_scratch(self) -> None:
        built = self.built()
        assert self.snapshot == built
        assert schedule(self.snapshot) == schedule(built)

    @invariant()
    def older_ones_are_as_they_were(self) -> None:
        assert all(older == then for older, then in self.older[-3:])


Derived.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestDerivedSnapshots = Derived.TestCase


def test_equal_snapshots_need_equal_time() -> None:
    snapshot = PoolSnapshot.build(POLICY, now=NOW)
    later: datetime = NOW + timedelta(seconds=1)
    assert snapshot.at(later) != snapshot
    assert snapshot.at(later).at(NOW) == snapshot
