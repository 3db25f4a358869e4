"""One training job in one pool under virtual time: every decision is production code, the cloud is an availability series.

`plan_markets` and `plan_scale` decide, `risk` learns, as the master's engine lets them. A spot machine is granted while its zone
has capacity. When that ends the machine is under notice: the job saves within the notice and its replacement is asked for at once.
What is trained or booted during a notice counts for nobody, neither here nor for the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.spot_series import Region
from resolute_provisioner import risk
from resolute_provisioner.model import (
    Demand,
    Gang,
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
from resolute_provisioner.planning.deadline import INTERRUPTIONS_PER_HOUR, Work
from resolute_provisioner.planning.markets import Running, Waiting, plan_markets
from resolute_provisioner.planning.plan import plan_scale

START = datetime(2023, 1, 1, tzinfo=UTC)
RESTORE_S = 15.0
"""From a machine that has joined to the first new step."""
EXPECTED_START_S = 60.0
"""What the engine reckons for that (`resolute_master.engine.markets.START_S`)."""
SPOT_PRICE, ON_DEMAND_PRICE = 0.918, 3.06
"""An hour of one V100 (p3.2xlarge, us-east-1, list price of early 2023 and the usual spot price then)."""
ON_DEMAND = "on-demand"
MAX_ROUNDS = 100
"""Plans at one moment: each refused launch is followed by another plan, and each offer is refused once."""
EPSILON_S = 1e-6


@dataclass(slots=True)
class Machine:
    """What the pool pays for. `until_s`: when its zone's capacity ends."""

    id: str
    offer: Offer
    asked_s: float
    joins_s: float
    until_s: float
    reserved_for: tuple[str, ...] = ()
    idle_since_s: float | None = None
    draining: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of the job. Seconds since its submission; `cost` in the currency of the prices, until the job's end."""

    kept_s: float = 0.0
    finished_s: float | None = None
    cost: float = 0.0
    interruptions: int = 0
    moves: int = 0
    refusals: int = 0
    plans: int = 0


@dataclass(slots=True)
class World:
    """A job of `length_s` that is submitted at `begin_s` of the region's series, with or without a deadline."""

    region: Region
    begin_s: float
    length_s: float
    deadline_s: float | None = None
    """Seconds since the submission; None: spot only, no deadline."""
    interruptions_per_hour: float = INTERRUPTIONS_PER_HOUR
    beliefs: dict[str, OfferBelief] = field(default_factory=dict)
    now_s: float = 0.0
    machines: list[Machine] = field(default_factory=list)
    on: Machine | None = None
    placed_s: float = 0.0
    run: int = 1
    asked_s: float = 0.0
    """When the run that waits or goes on was asked for."""
    launches: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    pool: PoolScaling = field(init=False)

    def __post_init__(self) -> None:
        offers = [_offer(zone.zone, Market.SPOT, SPOT_PRICE) for zone in self.region.zones]
        if self.deadline_s is not None:
            offers.append(_offer(ON_DEMAND, Market.ON_DEMAND, ON_DEMAND_PRICE))
        self.pool = PoolScaling(pool="p", offers=tuple(offers), max_instances=4, idle_timeout_s=300.0)
        self.now_s = self.begin_s

    @property
    def boot_s(self) -> float:
        return self.region.tick_s - RESTORE_S

    # -- the course of things ----------------------------------------------------------------------------------

    def play(self, until_s: float) -> Outcome:
        """Until the job is done or the series is at `until_s`."""
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
        """Seconds of training that are done and will be kept."""
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
        self._place()

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

    def _place(self) -> None:
        """As the scheduler does: on any free machine."""
        free = [m for m in self.machines if m.joins_s <= self.now_s and not m.draining]
        if self.on is None and free:
            self.on, self.placed_s = free[0], self.now_s
            free[0].idle_since_s = None

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
        """Plan and carry out until nothing more is launched at this moment; answers when to plan again."""
        for _ in range(MAX_ROUNDS):
            now, views = _at(self.now_s), [self._view(machine) for machine in self.machines]
            chosen = plan_markets(self.pool, views, self._demand(), self._waiting(), self._running(), self.beliefs, now)
            plan = plan_scale(self.pool, views, chosen.demand, self.beliefs, now)
            self.outcome.plans += 1
            for termination in (*plan.terminations, *chosen.drains):
                self._end(termination)
            granted = [self._launch(launch) for launch in plan.launches]
            times = [each for each in (plan.revisit_at, chosen.revisit_at) if each is not None]
            if not (granted or plan.terminations or chosen.drains):
                return _seconds(times)
            if not (any(granted) or plan.terminations or chosen.drains) and self._all_blocked(chosen.demand, now):
                # Nothing is left to ask for, so that another plan of this moment would be empty.
                until = [each.backoff_until for each in self.beliefs.values()]
                return _seconds([*times, *(each for each in until if each is not None and each > now)])
        raise AssertionError(f"{MAX_ROUNDS} plans at one moment")

    def _all_blocked(self, demand: Demand, now: datetime) -> bool:
        markets = {market for gang in demand.gangs for market in gang.markets}
        blocks = risk.blocks(self.pool.offers, self.beliefs, now)
        return all(offer.offer_id in blocks for offer in self.pool.offers if offer.market in markets)

    def _gang(self) -> Gang:
        return Gang(token=f"job.{self.run}", slots=1, submitted_at=_at(self.begin_s), single_machine=True)

    def _demand(self) -> Demand:
        return Demand(gangs=(self._gang(),) if self.on is None else ())

    def _waiting(self) -> dict[str, Waiting]:
        token = f"job.{self.run}"
        return {token: Waiting(token=token, since=_at(self.asked_s), work=self._work())}

    def _running(self) -> tuple[Running, ...]:
        if self.on is None:
            return ()
        market, since = self.on.offer.market, _at(self.placed_s)
        return (Running(gang=self._gang(), machines=(self.on.id,), market=market, since=since, work=self._work()),)

    def _work(self) -> Work | None:
        if self.deadline_s is None:
            return None
        known = self.beliefs.get(ON_DEMAND)
        boot_s = self.boot_s if known is None or known.join_time_s is None else known.join_time_s
        return Work(
            submitted_at=_at(self.begin_s),
            deadline=_at(self.begin_s + self.deadline_s),
            remaining_s=self.length_s - self._done_s(),
            total_s=self.length_s,
            restart_s=boot_s + EXPECTED_START_S,
            interruptions_per_hour=self.interruptions_per_hour,
        )

    def _launch(self, launch: Launch) -> bool:
        """Whether the cloud grants it."""
        (offer,) = [each for each in self.pool.offers if each.offer_id == launch.offer_id]
        belief = self.beliefs.get(offer.offer_id, OfferBelief(offer_id=offer.offer_id))
        self.launches += 1
        now, until_s = _at(self.now_s), self._until(offer)
        if until_s is None:
            self.outcome.refusals += 1
            self.beliefs[offer.offer_id] = risk.refused(
                belief, RefusalKind.NO_CAPACITY, "no capacity", asked_at=now, now=now, token=str(self.launches)
            )
            return False
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
        return True

    def _until(self, offer: Offer) -> float | None:
        """When a machine of the offer is taken back; None when it is refused."""
        if offer.market is Market.ON_DEMAND:
            return float("inf")
        (zone,) = [each for each in self.region.zones if each.zone == offer.zone]
        return zone.changes_at(self.now_s) if zone.is_up(self.now_s) else None

    def _end(self, termination: Termination) -> None:
        """A drained machine ends when the job has left it, which is at once: a checkpoint is part of the restore here."""
        (machine,) = [each for each in self.machines if each.id == termination.instance_id]
        if machine is self.on:
            self.outcome.moves += 1
            self._save()
        self.machines.remove(machine)
        if machine.joins_s <= self.now_s:
            self._learn(machine.offer, "ended", self.now_s - machine.joins_s)
        self._place()

    def _view(self, machine: Machine) -> InstanceView:
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


def _seconds(moments: list[datetime]) -> float | None:
    return (min(moments) - START).total_seconds() if moments else None


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)
