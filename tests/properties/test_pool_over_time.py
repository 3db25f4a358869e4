"""A pool through whatever happens to it: every decision keeps the promises, and nobody is made to leave again and again."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import event, settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, JobId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.worth import ORDINARY, Worth, ranked
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from support.effort import repeated
from support.pool_promises import check_all, returned
from support.pools import NOW, a_job, a_policy, an_agent, applied, closed, gone, waiting

LONGEST = 600.0
PERIODS = st.sampled_from([0.0, 0.0, 60.0, LONGEST])
"""Seconds of `min_runtime` and of `preemption_grace`."""
POLICIES = st.builds(
    replace,
    st.sampled_from(
        [
            a_policy(max_aux_containers_per_agent=2),
            a_policy(preemption=True, max_aux_containers_per_agent=2),
            a_policy(scheduler=SchedulerKind.FAIR_SHARE, max_aux_containers_per_agent=2),
            a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, max_aux_containers_per_agent=2),
        ]
    ),
    min_runtime_s=PERIODS,
    preemption_grace_s=PERIODS,
)
AGENTS = st.sampled_from(["a0", "a1", "a2", "a3"])
JOBS = st.sampled_from([f"j{number}" for number in range(5)])
BURSTS = st.tuples(st.booleans(), st.sampled_from([1, 2, 4]), st.integers(2, 6))
"""Whether the job is new, the slots of each of its tasks, and how many these are."""
ROUNDS = 40
"""More than a pool of this size ever needs to come to rest."""
AGAIN = 2
"""So often one that runs may be made to leave before the pool is at rest: once for those who come before it, and once more when it
was let in meanwhile on room that is reserved for another."""

ENOUGH = 50
"""Evictions in all histories of one kind of scheduling, at least: without them nothing is said of preemption."""
EVICTIONS = Counter[str]()
"""So many there were."""


class PoolOverTime(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.snapshot = PoolSnapshot.build(a_policy(), now=NOW)
        self.number = 0
        self.evictions = 0

    @initialize(
        policy=POLICIES,
        work=st.lists(st.tuples(JOBS, st.sampled_from([1, 1, 2, 4])), min_size=8, max_size=20),
        bursts=st.lists(BURSTS, min_size=1, max_size=3),
    )
    def begin(self, policy: PoolPolicy, work: list[tuple[str, int]], bursts: list[tuple[bool, int, int]]) -> None:
        """Most of the pool is in use already, and wanted by others."""
        agents = [an_agent(f"a{number}", slots) for number, slots in enumerate((2, 4, 4, 8))]
        jobs = [
            a_job(f"j{number}", second=number, owner=UserId(1 + number % 3), workspace_id=1 + number % 2)
            for number in range(5)
        ]
        self.snapshot = PoolSnapshot.build(policy, agents, jobs, now=NOW)
        for job, slots in work:
            self.come(job, slots, single_node=False, preemptible=True, count=1)
        self.decide()
        for burst in bursts:
            self.burst(burst)

    # -- what happens ------------------------------------------------------------------------------------------

    @rule(
        job=JOBS,
        slots=st.sampled_from([0, 1, 1, 2, 4, 4, 8, 12]),
        single_node=st.booleans(),
        preemptible=st.sampled_from([True, True, True, False]),
        count=st.integers(1, 6),
        worth=st.sampled_from([ORDINARY, ORDINARY, ranked(0.0, 1, 0.5), ranked(0.25, 0)]),
    )
    def come(
        self, job: str, slots: int, single_node: bool, preemptible: bool, count: int, worth: Worth = ORDINARY
    ) -> None:
        for _ in range(count):
            self.number += 1
            self.put(
                waiting(
                    f"t{self.number:03}",
                    job,
                    slots,
                    requested_at=self.snapshot.now,
                    single_node=single_node,
                    preemptible=preemptible,
                    worth=worth,
                )
            )

    @rule(burst=BURSTS)
    def burst(self, burst: tuple[bool, int, int]) -> None:
        """Work for which others have to leave: the most important of all, or where shares decide that of the heaviest, who has
        nothing else, comes to a pool that is in use."""
        newcomer, slots, count = burst
        self.come("j0", 1, single_node=False, preemptible=True, count=8)
        self.decide()
        name = f"b{self.number:03}" if newcomer else "b"
        owner = UserId(100 + self.number if newcomer else 100)
        self.put(a_job(name, priority=1, second=self.number, weight=8.0, owner=owner, workspace_id=int(owner)))
        self.come(name, slots, single_node=False, preemptible=True, count=count)
        self.decide()
        if self.snapshot.policy.min_runtime_s or self.snapshot.policy.preemption_grace_s:
            self.let_time_pass(LONGEST)
            self.decide()

    @rule(choice=st.integers(0, 1000))
    def end(self, choice: int) -> None:
        running = list(self.snapshot.running())
        if running:
            self.put(gone(running[choice % len(running)]))

    @rule(choice=st.integers(0, 1000))
    def withdraw(self, choice: int) -> None:
        pending = list(self.snapshot.pending())
        if pending:
            self.put(gone(pending[choice % len(pending)]))

    @rule(name=AGENTS, draining=st.booleans(), enabled=st.booleans())
    def change_agent(self, name: str, draining: bool, enabled: bool) -> None:
        agent = self.snapshot.agents.get(AgentId(name))
        if agent is not None:
            self.put(replace(agent, draining=draining, enabled=enabled))

    @rule(name=AGENTS, indices=st.sets(st.integers(0, 7), max_size=3), draining=st.booleans())
    def close_slots(self, name: str, indices: set[int], draining: bool) -> None:
        """These and no others. What runs there goes on, though where they are disabled not for long."""
        agent = self.snapshot.agents[AgentId(name)]
        opened = replace(agent, slots=tuple(replace(s, enabled=True, draining=False) for s in agent.slots))
        self.put(closed(opened, *indices, draining=draining))

    @rule(name=AGENTS)
    def lose_agent(self, name: str) -> None:
        """With everything on it, which is asked for anew."""
        agent = self.snapshot.agents[AgentId(name)]
        self.put(replace(agent, disconnected_at=self.snapshot.now))
        for allocation in list(self.snapshot.allocations.values()):
            if any(container.agent == agent.id for container in allocation.containers):
                self.come_again(allocation)

    @rule(name=AGENTS)
    def come_back(self, name: str) -> None:
        self.put(replace(self.snapshot.agents[AgentId(name)], disconnected_at=None))

    @rule(
        name=JOBS,
        priority=st.integers(40, 44),
        position=st.integers(0, 9),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
        max_slots=st.sampled_from([None, None, 4]),
    )
    def change_job(self, name: str, priority: int, position: int, weight: float, max_slots: int | None) -> None:
        job = self.snapshot.jobs[JobId(name)]
        self.put(replace(job, priority=priority, queue_position=float(position), weight=weight, max_slots=max_slots))

    @rule(choice=st.integers(0, 1000))
    def leave(self, choice: int) -> None:
        """One of those that were asked to leave has left, and wants to go on."""
        going = list(self.snapshot.leaving())
        if going:
            self.come_again(going[choice % len(going)])

    @rule(seconds=st.sampled_from([1.0, 60.0, LONGEST]))
    def let_time_pass(self, seconds: float) -> None:
        self.snapshot = self.snapshot.at(self.snapshot.now + timedelta(seconds=seconds))

    def come_again(self, allocation: Allocation) -> None:
        self.put(gone(allocation))
        self.put(replace(returned(allocation), requested_at=self.snapshot.now))

    def put(self, entity: Agent | Job | Allocation) -> None:
        self.snapshot = self.snapshot.after(entity)

    # -- what is decided ---------------------------------------------------------------------------------------

    @rule()
    def decide(self) -> None:
        """While those that were asked to leave are still leaving."""
        self.decided()

    def decided(self) -> Plan:
        plan = schedule(self.snapshot)
        check_all(self.snapshot, plan)
        self.evictions += len(plan.preempt)
        self.snapshot = applied(self.snapshot, plan)
        self.check_rest()
        return plan

    def check_rest(self) -> None:
        """When nothing is to be done now, nor is anything by time alone before the moment that the plan names."""
        now, plan = self.snapshot.now, schedule(self.snapshot)
        if plan.place or plan.preempt:
            return
        assert plan.revisit_at is None or plan.revisit_at > now
        last = now + timedelta(days=1) if plan.revisit_at is None else plan.revisit_at - timedelta(microseconds=1)
        later = schedule(self.snapshot.at(last))
        assert not later.place and not later.preempt, f"nobody was told to look again before {last}"

    @rule()
    def come_to_rest(self) -> None:
        """What is held up by `min_runtime` or `preemption_grace` is decided again when the plan says."""
        evicted = Counter[str]()
        for _ in range(ROUNDS):
            plan = self.decided()
            evicted.update(preemption.allocation.rpartition(".")[0] for preemption in plan.preempt)
            going = list(self.snapshot.leaving())
            for allocation in going:
                self.come_again(allocation)
            if not plan.place and not plan.preempt and not going:
                if plan.revisit_at is None:
                    break
                self.snapshot = self.snapshot.at(plan.revisit_at)
        else:
            raise AssertionError("the pool does not come to rest")
        assert max(evicted.values(), default=0) <= AGAIN, f"made to leave again and again: {evicted}"
        assert all(waits(a) or a.held_slots or not a.slots_needed for a in self.snapshot.allocations.values())

    def teardown(self) -> None:
        policy = self.snapshot.policy
        kind = policy.scheduler.value
        if policy.preemption or self.snapshot.shares is not None:
            target(float(self.evictions), label=f"evictions in one history, {kind}")
            EVICTIONS[kind] += self.evictions
        many = next((least for least in (50, 20, 10, 5, 1) if self.evictions >= least), 0)
        event(f"{kind}: {many} evictions or more")


PoolOverTime.TestCase.settings = settings(max_examples=repeated(push=35, night=100), stateful_step_count=30)


class TestPoolOverTime(PoolOverTime.TestCase):
    def runTest(self) -> None:
        EVICTIONS.clear()
        super().runTest()
        assert all(EVICTIONS[kind.value] >= ENOUGH for kind in SchedulerKind), f"too few had to leave: {EVICTIONS}"
