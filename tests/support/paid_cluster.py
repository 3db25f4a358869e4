"""A cluster with priced machines, cycle by cycle under virtual time, with the rules only.

It records independently the paid time of each machine and the slots of each task, like a cloud's bill. Tests compare the master's
accounts with these records.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from resolute.errors import ResoluteError
from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.account import Account, Limits
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import (
    AcknowledgePreemption,
    Command,
    CreateExperiment,
    CreateUser,
    MasterStarted,
    RecordLaunch,
    RecordObservation,
    RegisterAgent,
    ReportContainer,
)
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, ExperimentId, InstanceId, PoolName, UserId
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import PriceWord, RecordPrices
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.cycle import Cycle
from resolute_master.engine.memory import Memory
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.model import Intent, Market, Observed, Offer, PoolScaling
from support.cluster import T0, device
from support.engines import a_config

POOL = PoolName("default")


def a_paid_pool(
    *,
    price: float | None = 3.6,
    slots: int = 1,
    machines: int = 3,
    idle_s: float = 60.0,
    budget: Limits | None = None,
    market: Market = Market.ON_DEMAND,
) -> dict[PoolName, PoolPolicy]:
    """One offer; 3.6 per hour is 0.001 per second."""
    offer = Offer(offer_id="paid", instance_type="paid", zone="z", market=market, slots=slots, price_per_hour=price)
    scaling = PoolScaling(pool=POOL, offers=(offer,), max_instances=machines, idle_timeout_s=idle_s)
    return {POOL: PoolPolicy(name=POOL, scaling=scaling, budget=budget or Limits())}


@dataclass(slots=True, kw_only=True)
class Paid:
    """A line of the bill; `prices` contains (start, price per hour); `until` is None for a running machine."""

    prices: list[tuple[datetime, float]]
    until: datetime | None = None

    def cost(self, now: datetime, since: datetime = T0) -> float:
        ends = [*(begin for begin, _ in self.prices[1:]), self.until or now]
        return sum(
            price / 3600.0 * max(0.0, (min(end, now) - max(begin, since)).total_seconds())
            for (begin, price), end in zip(self.prices, ends, strict=True)
        )


@dataclass(slots=True, kw_only=True)
class Held:
    """Slots of a machine that a task holds, with start and end."""

    machine: Paid
    share: float
    since: datetime
    until: datetime | None = None

    def cost(self, now: datetime) -> float:
        return self.share * self.machine.cost(self.until or now, self.since)


@dataclass(slots=True, kw_only=True)
class Habits:
    """The behaviour of cloud and tasks, in seconds; the functions are called for each event."""

    boot_s: float = 10.0
    start_s: float = 2.0
    save_s: Callable[[], float] = lambda: 20.0
    """Time from the preemption to the end."""
    kill_s: float = 3.0
    stop_s: float = 5.0
    """A machine, from its request to the end of its bill."""


@dataclass(slots=True)
class PaidCluster:
    """`act` executes commands, `run_for` advances time."""

    pools: Mapping[PoolName, PoolPolicy]
    habits: Habits = field(default_factory=Habits)
    now: datetime = T0
    machines: dict[InstanceId, Paid] = field(default_factory=dict)
    tasks: dict[tuple[ExperimentId, ContainerId], Held] = field(default_factory=dict)
    decisions: list[str] = field(default_factory=list)
    memory: Memory = field(init=False)
    market_price: float | None = None
    """Start of price changes."""
    _coming: list[tuple[datetime, int, Callable[[], None]]] = field(default_factory=list)
    _known: set[object] = field(default_factory=set)
    _number: int = 0

    def __post_init__(self) -> None:
        self.memory = Memory(ClusterState(), self.pools, sequence=0, digest="", now=self.now)
        self.act(MasterStarted(version="1"))
        self.act(CreateUser(username="ada", password_hash="hash"))

    # -- queries of tests --------------------------------------------------------------------------------------

    def submit(
        self, *, max_cost: float | None = None, workspace: int = 1, priority: int = 42, **shape: Any
    ) -> ExperimentId:
        config = a_config(**shape)
        if max_cost is not None:
            config["resources"]["max_cost"] = max_cost
        created: ExperimentId = self.act(
            CreateExperiment(
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
                workspace_id=workspace,
            )
        )
        return created

    def act(self, command: Command) -> Any:
        """Executes a command and its immediate consequences, and returns its reply. Raises the error of a refusal."""
        reply = self._cycle(command)
        self._settle()
        if isinstance(reply, ResoluteError):
            raise reply
        return reply

    def run_for(self, seconds: float) -> None:
        until = self.now + timedelta(seconds=seconds)
        while (then := self._next(until)) is not None:
            self.now = max(self.now, then)
            while self._coming and self._coming[0][0] <= self.now:
                heapq.heappop(self._coming)[2]()
            self._settle()
        self.now = until

    def experiment(self, id_: ExperimentId) -> Experiment:
        found = self.memory.state.get(Experiment, id_)
        assert found is not None
        return found

    def account(self, id_: str) -> Account:
        found = self.memory.state.get(Account, id_)
        assert found is not None, f"{id_} has spent nothing; there are {[a.id for a in self.memory.state.all(Account)]}"
        return found.until(self.now)

    def bill(self, since: datetime = T0) -> float:
        """Cost of all machines."""
        return sum(paid.cost(self.now, since) for paid in self.machines.values())

    def spent_by(self, experiment: ExperimentId) -> float:
        """The cost of the slots that its tasks held."""
        return sum(paid.cost(self.now) for (owner, _), paid in self.tasks.items() if owner == experiment)

    def running(self) -> int:
        return sum(paid.until is None for paid in self.tasks.values())

    def killed(self) -> int:
        """Number of killed runs, which had no time to save."""
        return sum(isinstance(key, tuple) and key[0] == "killed" for key in self._known)

    # -- faults ------------------------------------------------------------------------------------------------

    def lose_machine(self, number: int) -> None:
        """Removes a live machine without notice."""
        living = sorted(id_ for id_, paid in self.machines.items() if paid.until is None)
        if living:
            self._ends(living[number % len(living)])
            self._settle()

    def move_market(self, price_per_hour: float) -> None:
        """Sets the price of live machines from now on, and reports it to the master."""
        self.market_price = price_per_hour
        for paid in self.machines.values():
            if paid.until is None:
                paid.prices.append((self.now, price_per_hour))
        word = PriceWord(offer_id="paid", per_hour=price_per_hour, as_of=self.now)
        self.act(RecordPrices(pool=POOL, source="the market", prices=(word,)))

    def restart_master(self) -> None:
        """Restarts the master from the stored state. Agents reconnect at once and report their containers."""
        state = self.memory.state
        again = ClusterState(state.entities(), tuple(state.outbox.values()))
        self.memory = Memory(again, self.pools, sequence=self.memory.sequence, digest=self.memory.digest, now=self.now)
        self._cycle(MasterStarted(version="1"))
        for id_, paid in sorted(self.machines.items()):
            if paid.until is None and ("joined", id_) in self._known:
                self._register(id_)
        self._settle()

    # -- simulation --------------------------------------------------------------------------------------------

    def _cycle(self, *commands: Command) -> Any:
        self._number += 1
        outcome = Cycle(self.memory, now=self.now, entropy=str(self._number)).run(commands)
        if outcome.change is not None:
            self.decisions += [f"{d.kind} {d.subject}: {d.reason}" for d in outcome.change.decisions]
            self.memory.absorb(outcome.change, outcome.snapshots, outcome.digest)
        return outcome.replies[0] if outcome.replies else None

    def _settle(self) -> None:
        """Runs cycles until nothing is due: timers of the rules, and immediate responses of cloud and tasks."""
        for _ in range(1000):
            seen = self.memory.sequence
            self._answer()
            wake = self.memory.next_wake()
            if wake is not None and wake <= self.now:
                self._cycle()
            elif self.memory.sequence == seen:
                return
        raise AssertionError(f"the rules do not come to rest: {self.decisions[-10:]}")

    def _next(self, until: datetime) -> datetime | None:
        wakes = [self.memory.next_wake(), self._coming[0][0] if self._coming else None]
        return min((wake for wake in wakes if wake is not None and wake <= until), default=None)

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._coming, (self.now + timedelta(seconds=seconds), self._number, what))

    def _once(self, *key: object) -> bool:
        if key in self._known:
            return False
        self._known.add(key)
        return True

    def _answer(self) -> None:
        for instance in self.memory.state.all(Instance):
            if instance.observed is Observed.UNKNOWN and self._once("launched", instance.id):
                self._launch(instance)
            if instance.intent is Intent.STOP and self._once("stopping", instance.id):
                self._in(self.habits.stop_s, self._doing(self._ends, instance.id))
        for allocation in self.memory.state.all(Allocation):
            self._serve(allocation)

    @staticmethod
    def _doing(what: Callable[[Any], None], subject: Any) -> Callable[[], None]:
        return lambda: what(subject)

    def _launch(self, instance: Instance) -> None:
        price = instance.price_per_hour if self.market_price is None else self.market_price
        self.machines[instance.id] = Paid(prices=[(self.now, price or 0.0)])
        self._cycle(
            RecordLaunch(instance=instance.id, provider_id=instance.id, observed=Observed.RUNNING, paid_from=self.now)
        )
        self._in(self.habits.boot_s, self._doing(self._joins, instance.id))

    def _joins(self, id_: InstanceId) -> None:
        if self.machines[id_].until is None:
            self._known.add(("joined", id_))
            self._register(id_)

    def _register(self, id_: InstanceId) -> None:
        instance = self.memory.state.get(Instance, id_)
        if instance is None:
            return
        there = [
            self._report(container.id, container.state)
            for allocation in self.memory.state.find(Allocation, "allocations_on_agent", AgentId(id_))
            for container in allocation.containers
            if not container.ended
        ]
        self._cycle(
            RegisterAgent(
                agent=AgentId(id_),
                pool=POOL,
                incarnation=f"link {self._number}",
                devices=tuple(device(index) for index in range(instance.slots)),
                address="",
                version="0",
                instance=id_,
                reports=tuple(there),
            )
        )

    def _report(self, container: ContainerId, state: ContainerState, exit_: Exit | None = None) -> ContainerReport:
        self._number += 1
        return ContainerReport(
            container_id=container, allocation_id="", state=state, sequence=self._number, at=self.now, exit=exit_
        )

    def _ends(self, id_: InstanceId) -> None:
        """Removes the machine with its containers."""
        if self.machines[id_].until is not None:
            return
        self.machines[id_].until = self.now
        for allocation in self.memory.state.find(Allocation, "allocations_on_agent", AgentId(id_)):
            for container in allocation.containers:
                self._release(container.id)
        self._cycle(
            RecordObservation(
                instance=id_, provider_id=id_, observed=Observed.GONE, paid_from=None, paid_until=self.now
            )
        )

    # -- tasks -------------------------------------------------------------------------------------------------

    def _serve(self, allocation: Allocation) -> None:
        """The reaction of a task's programs to orders."""
        for container in allocation.containers:
            if container.ended:
                self._release(container.id)
            elif self._once("task", container.id):
                self._occupy(allocation, container.agent, container.id, len(container.slots))
                self._in(self.habits.start_s, self._moving(allocation.id, container.id, ContainerState.RUNNING))
        if not allocation.containers or allocation.ended:
            return
        if allocation.preempt is not None and self._once("asked", allocation.id):
            self._cycle(AcknowledgePreemption(allocation=allocation.id))
            self._end_in(self.habits.save_s(), allocation)
        if allocation.killed_at is not None and self._once("killed", allocation.id):
            self._end_in(self.habits.kill_s, allocation)

    def _end_in(self, seconds: float, allocation: Allocation) -> None:
        for container in allocation.containers:
            self._in(seconds, self._moving(allocation.id, container.id, ContainerState.TERMINATED))

    def _occupy(self, allocation: Allocation, agent: AgentId, container: ContainerId, slots: int) -> None:
        machine = self.memory.state.get(Instance, agent)
        trial_owner = ExperimentId(int(allocation.task_id.partition(".")[0]))
        assert machine is not None
        paid = self.machines[InstanceId(agent)]
        self.tasks[(trial_owner, container)] = Held(machine=paid, share=slots / machine.slots, since=self.now)

    def _release(self, container: ContainerId) -> None:
        for (_, id_), paid in self.tasks.items():
            if id_ == container and paid.until is None:
                paid.until = self.now

    def _moving(self, id_: AllocationId, container: ContainerId, state: ContainerState) -> Callable[[], None]:
        def report() -> None:
            allocation = self.memory.state.get(Allocation, id_)
            found = [c for c in allocation.containers if c.id == container] if allocation is not None else []
            if not found or found[0].ended:
                return
            ended = state is ContainerState.TERMINATED
            if ended:
                self._release(container)
            agent = self.memory.state.get(Agent, found[0].agent)
            if agent is None:
                return
            report_ = self._report(container, state, Exit(code=0) if ended else None)
            self._cycle(ReportContainer(agent=found[0].agent, incarnation=agent.incarnation, report=report_))

        return report


def words(decisions: Iterable[str], kind: str) -> list[str]:
    """Decisions of one kind."""
    return [decision for decision in decisions if decision.startswith(f"{kind} ")]
