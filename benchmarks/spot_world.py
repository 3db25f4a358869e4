"""One training job in one pool under virtual time: production code makes every decision, the cloud is an availability series.

`plan_pool` decides and `risk` learns, as in a live master. A spot request succeeds while its zone has capacity. When the capacity
ends, the machine gets a notice: the job saves within the notice, and its replacement is requested at once. Training and boots
during a notice count neither here nor for the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.spot_series import Region
from resolute.wire.states import TaskType
from resolute_master.decision.plan_pool import plan_pool
from resolute_master.decision.view import PoolView, Progress
from resolute_master.domain.agent import SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.pool import virtual_agent
from resolute_master.scheduler.carried_out import placed
from resolute_master.scheduler.plan import Placement
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner import risk
from resolute_provisioner.model import (
    InstanceView,
    Intent,
    Launch,
    Market,
    Observed,
    Offer,
    OfferBelief,
    PoolScaling,
    RefusalKind,
    Termination,
)
from resolute_provisioner.planning.deadline import INTERRUPTIONS_PER_HOUR

START = datetime(2023, 1, 1, tzinfo=UTC)
POOL = PoolName("p")
RESTORE_S = 15.0
"""Seconds from a machine's join to the first new step."""
SPOT_PRICE, ON_DEMAND_PRICE = 0.918, 3.06
"""Price of an hour of one V100 (p3.2xlarge, us-east-1; list price of early 2023, and the usual spot price of that time)."""
ON_DEMAND = "on-demand"
MAX_ROUNDS = 100
"""Maximum number of plans at one time: another plan follows each refused launch, and each offer is refused once."""
EPSILON_S = 1e-6


@dataclass(slots=True)
class Machine:
    """A paid machine. `until_s` is the end of its zone's capacity."""

    id: str
    offer: Offer
    asked_s: float
    joins_s: float
    until_s: float
    reserved_for: tuple[str, ...] = ()
    idle_since_s: float | None = None


@dataclass(slots=True)
class Outcome:
    """The result of the job. Seconds since its submission; `cost` in the currency of the prices, until the job's end."""

    kept_s: float = 0.0
    finished_s: float | None = None
    cost: float = 0.0
    interruptions: int = 0
    moves: int = 0
    refusals: int = 0
    plans: int = 0


@dataclass(slots=True)
class World:
    """A job of `length_s`, submitted at `begin_s` of the region's series, with or without a deadline."""

    region: Region
    begin_s: float
    length_s: float
    deadline_s: float | None = None
    """Seconds since the submission; None means spot only without a deadline."""
    interruptions_per_hour: float = INTERRUPTIONS_PER_HOUR
    beliefs: dict[str, OfferBelief] = field(default_factory=dict)
    now_s: float = 0.0
    machines: list[Machine] = field(default_factory=list)
    on: Machine | None = None
    placed_s: float = 0.0
    run: int = 1
    asked_s: float = 0.0
    """Time of the request of the pending or running run."""
    launches: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    pool: PoolScaling = field(init=False)

    def __post_init__(self) -> None:
        offers = [_offer(zone.zone, Market.SPOT, SPOT_PRICE) for zone in self.region.zones]
        if self.deadline_s is not None:
            offers.append(_offer(ON_DEMAND, Market.ON_DEMAND, ON_DEMAND_PRICE))
        self.pool = PoolScaling(pool="p", offers=tuple(offers), max_instances=4, idle_timeout_s=300.0)
        self.now_s = self.asked_s = self.begin_s
        self.beliefs.setdefault(ON_DEMAND, OfferBelief(offer_id=ON_DEMAND, join_time_s=self.boot_s))

    @property
    def boot_s(self) -> float:
        return self.region.tick_s - RESTORE_S

    # -- events ------------------------------------------------------------------------------------------------

    def play(self, until_s: float) -> Outcome:
        """Runs until the job ends or the series reaches `until_s`."""
        while True:
            wake = self._decide()
            next_s = min(self._next_event(), until_s if wake is None else min(wake, until_s))
            self._advance(max(next_s, self.now_s))
            if self.outcome.finished_s is not None or self.now_s >= until_s:
                return self.outcome

    def _next_event(self) -> float:
        times = [machine.until_s for machine in self.machines]
        times += [machine.joins_s for machine in self.machines if machine.joins_s > self.now_s]
        if self.on is not None:
            times.append(max(self.now_s, self._trains_from()) + self.length_s - self._done_s())
        return min(times, default=float("inf"))

    @property
    def done_s(self) -> float:
        """Seconds of training that are kept."""
        return self._done_s()

    def _trains_from(self) -> float:
        return self.placed_s + RESTORE_S

    def _done_s(self) -> float:
        running_s = max(0.0, self.now_s - self._trains_from()) if self.on is not None else 0.0
        return self.outcome.kept_s + running_s

    def _advance(self, to_s: float) -> None:
        hours = (to_s - self.now_s) / 3600
        self.outcome.cost += hours * sum(machine.offer.price_per_hour or 0.0 for machine in self.machines)
        self.now_s = to_s
        if self.on is not None and self._done_s() >= self.length_s - EPSILON_S:
            self.outcome.kept_s = self.length_s
            self.outcome.finished_s = to_s - self.begin_s
            return
        for machine in [m for m in self.machines if m.joins_s <= to_s and m.idle_since_s is None and m is not self.on]:
            machine.idle_since_s = to_s
            self._learn(machine.offer, "joined", to_s - machine.asked_s)
        for machine in [m for m in self.machines if m.until_s <= to_s]:
            self._lose(machine)

    def _lose(self, machine: Machine) -> None:
        if machine is self.on:
            self.outcome.interruptions += 1
            self._save()
        self.machines.remove(machine)
        if machine.joins_s <= self.now_s:
            self._learn(machine.offer, "interrupted", self.now_s - machine.joins_s)

    def _save(self) -> None:
        self.outcome.kept_s = self._done_s()
        self.on, self.run, self.asked_s = None, self.run + 1, self.now_s

    def _learn(self, offer: Offer, what: str, seconds: float) -> None:
        belief = self.beliefs.get(offer.offer_id, OfferBelief(offer_id=offer.offer_id))
        now = _at(self.now_s)
        if what == "joined":
            belief = risk.joined(belief, join_time_s=seconds, now=now)
        else:
            belief = risk.ended(belief, exposure_s=seconds, interrupted=what == "interrupted", now=now)
        self.beliefs[offer.offer_id] = belief

    # -- decisions ---------------------------------------------------------------------------------------------

    def _decide(self) -> float | None:
        """Plans and applies until no plan changes anything at this time. Returns the time of the next plan."""
        for _ in range(MAX_ROUNDS):
            plan = plan_pool(self._view())
            self.outcome.plans += 1
            for placement in plan.starts:
                self._start(placement.agents[0])
            for termination in plan.endings:
                self._end(termination)
            for launch in plan.launches:
                self._launch(launch)
            if not (plan.starts or plan.endings or plan.launches):
                return None if plan.revisit_at is None else (plan.revisit_at - START).total_seconds()
        raise AssertionError(f"{MAX_ROUNDS} plans at one moment")

    def _view(self) -> PoolView:
        policy, now = PoolPolicy(name=POOL, scaling=self.pool), _at(self.now_s)
        job = Job(
            id=JobId("job"),
            kind="EXPERIMENT",
            name="job",
            owner=UserId(1),
            workspace_id=1,
            project_id=1,
            pool=POOL,
            priority=42,
            weight=1.0,
            max_slots=None,
            submitted_at=_at(self.begin_s),
            queue_position=0.0,
        )
        allocation = self._allocation()
        joined = [machine for machine in self.machines if machine.joins_s <= self.now_s]
        agents = [virtual_agent(policy, InstanceId(each.id), 1, _at(each.joins_s)) for each in joined]
        return PoolView(
            snapshot=PoolSnapshot.build(policy, agents, [job], [allocation], now=now),
            machines=tuple(self._machine_view(machine) for machine in self.machines),
            beliefs=self.beliefs,
            progress={} if self.deadline_s is None else {allocation.id: self._progress()},
        )

    def _allocation(self) -> Allocation:
        waits = Allocation(
            id=AllocationId(f"job.{self.run}"),
            task_id=TaskId("job"),
            task_type=TaskType.TRIAL,
            job_id=JobId("job"),
            pool=POOL,
            slots_needed=1,
            run_id=self.run,
            requested_at=_at(self.asked_s),
            single_node=True,
            deadline=None if self.deadline_s is None else _at(self.begin_s + self.deadline_s),
        )
        if self.on is None:
            return waits
        agent = AgentId(self.on.id)
        slots = (SlotRef(agent=agent, index=0),)
        runs = placed(
            waits, Placement(allocation=waits.id, agents=(agent,), slots=slots, reason=""), _at(self.placed_s)
        )
        return replace(runs, saved_at=_at(self.placed_s))  # nothing is ever lost

    def _progress(self) -> Progress:
        """Saved work, which equals the done work, because no work is ever lost."""
        part = self._done_s() / self.length_s
        return Progress(
            submitted_at=_at(self.begin_s),
            total_s=self.length_s,
            saved=part,
            done=part,
            interruptions_per_hour=self.interruptions_per_hour,
        )

    def _start(self, id_: str) -> None:
        (machine,) = [each for each in self.machines if each.id == id_]
        self.on, self.placed_s, machine.idle_since_s = machine, self.now_s, None

    def _launch(self, launch: Launch) -> None:
        (offer,) = [each for each in self.pool.offers if each.offer_id == launch.offer_id]
        belief = self.beliefs.get(offer.offer_id, OfferBelief(offer_id=offer.offer_id))
        self.launches += 1
        now, until_s = _at(self.now_s), self._until(offer)
        if until_s is None:
            self.outcome.refusals += 1
            self.beliefs[offer.offer_id] = risk.refused(
                belief, RefusalKind.NO_CAPACITY, "no capacity", asked_at=now, now=now, token=str(self.launches)
            )
            return
        self.beliefs[offer.offer_id] = risk.launched(belief, now=now)
        machine = Machine(
            id=f"m{self.launches:06d}",
            offer=offer,
            asked_s=self.now_s,
            joins_s=self.now_s + self.boot_s,
            until_s=until_s,
            reserved_for=launch.gang_tokens,
        )
        self.machines.append(machine)

    def _until(self, offer: Offer) -> float | None:
        """Time of the interruption of a machine of the offer; None if the request is refused."""
        if offer.market is Market.ON_DEMAND:
            return float("inf")
        (zone,) = [each for each in self.region.zones if each.zone == offer.zone]
        return zone.changes_at(self.now_s) if zone.is_up(self.now_s) else None

    def _end(self, termination: Termination) -> None:
        """A drained machine ends when its job has ended, which is immediate: the time of a checkpoint is part of the restore
        here."""
        (machine,) = [each for each in self.machines if each.id == termination.instance_id]
        if machine is self.on:
            self.outcome.moves += 1
            self._save()
        self.machines.remove(machine)
        if machine.joins_s <= self.now_s:
            self._learn(machine.offer, "ended", self.now_s - machine.joins_s)

    def _machine_view(self, machine: Machine) -> InstanceView:
        joined = machine.joins_s <= self.now_s
        return InstanceView(
            instance_id=machine.id,
            token=machine.id,
            offer_id=machine.offer.offer_id,
            slots=1,
            intent=Intent.RUN,
            observed=Observed.RUNNING if joined else Observed.PENDING,
            requested_at=_at(machine.asked_s),
            launched_at=_at(machine.asked_s),
            joined_at=_at(machine.joins_s) if joined else None,
            agent_connected=joined,
            slots_in_use=1 if machine is self.on else 0,
            occupants=(f"job.{self.run}",) if machine is self.on else (),
            idle_since=None if machine.idle_since_s is None else _at(machine.idle_since_s),
            reserved_for=machine.reserved_for,
        )


def _offer(zone: str, market: Market, price: float) -> Offer:
    return Offer(offer_id=zone, instance_type="p3.2xlarge", zone=zone, market=market, slots=1, price_per_hour=price)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)
