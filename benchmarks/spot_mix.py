"""A mix of jobs without deadlines on a pool of spot and on demand at its defaults, beside spot only and on demand only.

The cost is compared with the cost on spot only plus the *forced cost* of outages: the difference of the prices for the slots that
are busy in the run on demand only while no zone has capacity. The wait is compared with the wait on demand only. All runs begin
with the series.

The pool repeats a refused request each minute in each zone, and each answer causes a decision. A day of jobs that last a few hours
keeps the three runs of a region within a minute or two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from benchmarks.report import Row, Spread, Target
from benchmarks.spot_series import Region, Series
from benchmarks.spot_world import ON_DEMAND_PRICE, SPOT_PRICE
from resolute.config.consolidation import ConsolidationPolicy
from resolute.config.spot_policy import SpotFallbackPolicy
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.capacity import CapacityTrace
from resolute_sim.twin.figures import Report
from resolute_sim.twin.synthetic import synthetic_jobs
from resolute_sim.twin.twin import Setting, simulate

JOBS, DAYS, LONGEST_S = 100, 1.0, 6 * 3600.0
COST, WAIT = 1.15, 1.5


def default_scaling(name: str, offers: tuple[Offer, ...], *, max_instances: int) -> PoolScaling:
    """The settings of a pool whose configuration has nothing but its offers and its maximum."""
    moves, back = ConsolidationPolicy(), SpotFallbackPolicy()
    return PoolScaling(
        pool=name,
        offers=offers,
        max_instances=max_instances,
        idle_learnt=True,
        consolidation=Consolidation(margin=float(moves.margin), restart_s=moves.restart_cost),
        spot_fallback=SpotFallback(after_s=back.after, return_after_s=back.return_after),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The three runs in one region."""

    region: str
    both: Report
    spot: Report
    on_demand: Report
    forced: float
    """The forced cost of outages, in dollars."""

    @property
    def cost_ratio(self) -> float:
        return self.both.figures.cost / (self.spot.figures.cost + self.forced)

    @property
    def wait_ratio(self) -> float:
        return self.both.figures.wait_mean_s / self.on_demand.figures.wait_mean_s

    def rows(self) -> list[Row]:
        both, spot, on_demand = self.both.figures, self.spot.figures, self.on_demand.figures
        return [
            Row(
                name=f"mix on both markets, {self.region}: cost",
                subject=Spread.one(both.cost, "$"),
                bound_name="spot only, and what outages force",
                bound=Spread.one(spot.cost + self.forced, "$"),
                result=self.cost_ratio,
                target=Target(at_most=COST),
                notes=f"{both.jobs_completed} jobs; forced {self.forced:.0f} $; on demand only {on_demand.cost:.0f} $",
            ),
            Row(
                name=f"mix on both markets, {self.region}: mean wait",
                subject=Spread.one(both.wait_mean_s, "s"),
                bound_name="on demand only",
                bound=Spread.one(on_demand.wait_mean_s, "s"),
                result=self.wait_ratio,
                target=Target(at_most=WAIT),
                notes=f"{both.interruptions} interruptions; spot only waits {spot.wait_mean_s:,.0f} s",
            ),
        ]


def mix(region: Region, *, jobs: int = JOBS, days: float = DAYS, seed: int = 0) -> Mix:
    drawn = synthetic_jobs(seed, jobs=jobs, days=days)
    work = tuple(replace(job, slots=1, duration_s=min(LONGEST_S, job.duration_s)) for job in drawn)
    spot = tuple(_offer(zone.zone, Market.SPOT, SPOT_PRICE) for zone in region.zones)
    on_demand = _offer("on-demand", Market.ON_DEMAND, ON_DEMAND_PRICE)
    series = tuple(_series(zone) for zone in region.zones)
    found = [
        simulate(Setting(pool=_pool(offers), jobs=work, capacity=series), "resolute")
        for offers in ((*spot, on_demand), spot, (on_demand,))
    ]
    return Mix(region=region.name, both=found[0], spot=found[1], on_demand=found[2], forced=_forced(region, found[2]))


def _series(zone: Series) -> CapacityTrace:
    steps = [(float(up), sum(1 for _ in ticks)) for up, ticks in groupby(zone.up)]
    return CapacityTrace(
        name=zone.zone,
        kind="availability",
        values=tuple(up for up, _ in steps),
        ends=tuple(accumulate(ticks * zone.tick_s for _, ticks in steps)),
        offer_id=zone.zone,
    )


def _forced(region: Region, on_demand: Report) -> float:
    none = [not any(each) for each in zip(*(zone.up for zone in region.zones), strict=True)]
    slot_s = 0.0
    for (at_s, slots), (until_s, _) in zip(on_demand.busy_slots, on_demand.busy_slots[1:], strict=False):
        while at_s < until_s:
            tick = int(at_s // region.tick_s)
            end_s = min(until_s, (tick + 1) * region.tick_s)
            slot_s += slots * (end_s - at_s) * none[tick % len(none)]
            at_s = end_s
    return slot_s / 3600.0 * (ON_DEMAND_PRICE - SPOT_PRICE)


def _pool(offers: tuple[Offer, ...]) -> PoolPolicy:
    return PoolPolicy(name=PoolName("mix"), scaling=default_scaling("mix", offers, max_instances=4_000))


def _offer(name: str, market: Market, price: float) -> Offer:
    return Offer(offer_id=name, instance_type="v100", zone=name, market=market, slots=1, price_per_hour=price)
