"""Training on spot: the production rules on series of capacity, compared with an oracle that knows the series.

- *goodput*: kept training seconds / seconds in which any zone has capacity, in the first two weeks of the series
- *makespan*: from the submission of a job of 48 hours to its end, on spot alone
- *deadline*: the cost of such a job with a deadline at 1.2, 1.5 and 2 times its length, until its end; *offline optimum*: the
lowest
  possible cost before the deadline
- *mix*: many jobs without deadlines on a pool of both markets at its defaults (`spot_mix`)

The oracle and the optimum use the same zones and pay the same starts: one tick of the series for boot and restore (`spot_optimum`).
`spot_world` describes the model. If `RESOLUTE_TRACES` is unset, the series are synthetic, and the rows name them so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from random import Random
from statistics import fmean

import numpy as np

from benchmarks import spot_optimum
from benchmarks.report import Row, Spread, Target
from benchmarks.spot_mix import mix
from benchmarks.spot_series import Region, beginning, regions
from benchmarks.spot_world import ON_DEMAND_PRICE, SPOT_PRICE, World
from resolute_provisioner.planning.deadline import INTERRUPTIONS_PER_HOUR

JOB_H = 48.0
BEGINNINGS = 200
"""Total number, divided among the regions."""
SLACKS = (1.2, 1.5, 2.0)
PEER_BEGINNINGS, PEER_SLACK = 49, 1.5
"""Number for the rules that are compared with ours."""
SEED = 5
GOODPUT_DAYS = 14
"""Measured part of the series, from its beginning."""
ONE_ZONE, SEVERAL_ZONES, MAKESPAN, COST = 0.97, 0.95, 1.06, 1.15
LONGEST_MAKESPAN = 4
"""A job begins early enough in the series to take this many times its length."""
PEERS = {"the line of the paper alone": math.inf, "no line, the safety net alone": 0.0}


def main() -> list[Row]:
    found, origin = regions()
    # One process per core: all times are virtual.
    with ProcessPoolExecutor() as processes:
        one = processes.map(_one_zone, found)
        several = processes.map(_several_zones, found)
        alone = list(processes.map(_makespans, found, _shares(BEGINNINGS, found)))
        ours = [_run_all(processes, found, slack, BEGINNINGS, INTERRUPTIONS_PER_HOUR) for slack in SLACKS]
        peers = {
            name: _run_all(processes, found, PEER_SLACK, PEER_BEGINNINGS, per_hour) for name, per_hour in PEERS.items()
        }
        mixes = list(processes.map(mix, found))
        rows = [*one, *several, *map(_makespan, alone), _makespan(_all_of(alone))]
    rows[0] = replace(rows[0], notes=f"{rows[0].notes}; {origin}")
    for slack, runs in zip(SLACKS, ours, strict=True):
        rows += [_missed(runs, slack), _cost(runs, slack)]
    rows += [_peer_cost(runs, name) for name, runs in peers.items()]
    return [*rows, *(row for each in mixes for row in each.rows())]


def _shares(beginnings: int, found: Sequence[Region]) -> list[int]:
    """The number of beginnings for each region, distributed evenly."""
    return [beginnings // len(found) + (number < beginnings % len(found)) for number in range(len(found))]


# --------------------------------------------------------------------------------------------------------- goodput


@dataclass(frozen=True)
class Goodput:
    """Goodput of ours and of the oracle, for the same region and time."""

    ours: float
    oracle: float

    @property
    def ratio(self) -> float:
        return self.ours / self.oracle


def goodput(region: Region) -> Goodput:
    """Goodput of an endless job."""
    region = beginning(region, round(GOODPUT_DAYS * 86_400 / region.tick_s))
    world = World(region=region, begin_s=0.0, length_s=math.inf)
    world.play(region.zones[0].duration_s - region.tick_s / 2)
    capacity_s = region.tick_s * sum(map(any, zip(*(zone.up for zone in region.zones), strict=True)))
    return Goodput(ours=world.done_s / capacity_s, oracle=spot_optimum.most_work(region) * region.tick_s / capacity_s)


def _one_zone(region: Region) -> Row:
    found = [goodput(Region(name=zone.zone, zones=(zone,))) for zone in region.zones]
    return _goodput_row(f"goodput in one zone, {region.name}", found, ONE_ZONE, "the worst zone is judged")


def _several_zones(region: Region) -> Row:
    zones = f"{len(region.zones)} zones"
    return _goodput_row(f"goodput over {zones}, {region.name}", [goodput(region)], SEVERAL_ZONES, "")


def _goodput_row(name: str, found: Sequence[Goodput], target: float, notes: str) -> Row:
    return Row(
        name=name,
        subject=Spread.of([each.ours for each in found], ""),
        bound_name="oracle",
        bound=Spread.of([each.oracle for each in found], ""),
        result=min(each.ratio for each in found),
        target=Target(at_least=target),
        notes=notes,
    )


# -------------------------------------------------------------------------------------------------------- makespan


@dataclass(frozen=True)
class Makespans:
    """Hours of our rules and of the oracle, from the same beginnings."""

    region: str
    ours: tuple[float, ...]
    oracle: tuple[float, ...]


def _makespans(region: Region, beginnings: int) -> Makespans:
    length = round(JOB_H * 3600 / region.tick_s)
    begins = _beginnings(region, beginnings, LONGEST_MAKESPAN * length)
    ends = spot_optimum.soonest_ends(region, np.array(begins, dtype=np.int64), length)
    assert (ends > 0).all(), f"{region.name}: the series is too short for a job of {JOB_H:g} h"
    return Makespans(
        region=region.name,
        ours=tuple(_alone(region, begin, length) for begin in begins),
        oracle=tuple(float(end) * region.tick_s / 3600 for end in ends),
    )


def _alone(region: Region, begin: int, length: int) -> float:
    world = World(region=region, begin_s=begin * region.tick_s, length_s=length * region.tick_s)
    outcome = world.play(region.zones[0].duration_s - region.tick_s / 2)
    assert outcome.finished_s is not None, f"{region.name}: the series is too short for a job begun in tick {begin}"
    return outcome.finished_s / 3600


def _all_of(found: Sequence[Makespans]) -> Makespans:
    return Makespans(
        region="all regions",
        ours=tuple(hours for each in found for hours in each.ours),
        oracle=tuple(hours for each in found for hours in each.oracle),
    )


def _makespan(found: Makespans) -> Row:
    ours, oracle = fmean(found.ours), fmean(found.oracle)
    return Row(
        name=f"makespan of {JOB_H:g} h, {found.region}",
        subject=Spread.of(found.ours, "h"),
        bound_name="oracle",
        bound=Spread.of(found.oracle, "h"),
        result=ours / oracle,
        target=Target(at_most=MAKESPAN),
        notes=f"means of {len(found.ours)} beginnings: {ours:.1f} h and {oracle:.1f} h",
    )


# ------------------------------------------------------------------------------------------------------- deadlines


@dataclass(frozen=True)
class DeadlineRun:
    """One job with a deadline."""

    region: str
    cost: float
    least_cost: float
    late: bool


def _run_all(
    processes: ProcessPoolExecutor, found: Sequence[Region], slack: float, beginnings: int, per_hour: float
) -> list[DeadlineRun]:
    shares = _shares(beginnings, found)
    of_regions = processes.map(deadline_runs, found, repeat(slack), shares, repeat(per_hour))
    return [run for runs in of_regions for run in runs]


def deadline_runs(
    region: Region, slack: float, beginnings: int, per_hour: float, hours: float = JOB_H
) -> list[DeadlineRun]:
    """`per_hour` is the rate of interruptions that the deadline rule expects (`deadline.Work.interruptions_per_hour`)."""
    length = round(hours * 3600 / region.tick_s)
    deadline = math.floor(slack * length)
    begins = _beginnings(region, beginnings, deadline)
    tick_h = region.tick_s / 3600
    least = spot_optimum.least_cost(
        region,
        np.array(begins, dtype=np.int64),
        length,
        deadline,
        spot=SPOT_PRICE * tick_h,
        on_demand=ON_DEMAND_PRICE * tick_h,
    )
    return [_deadline_run(region, *each, length, deadline, per_hour) for each in zip(begins, least, strict=True)]


def _deadline_run(
    region: Region, begin: int, least_cost: float, length: int, deadline: int, per_hour: float
) -> DeadlineRun:
    world = World(
        region=region,
        begin_s=begin * region.tick_s,
        length_s=length * region.tick_s,
        deadline_s=deadline * region.tick_s,
        interruptions_per_hour=per_hour,
    )
    outcome = world.play((begin + deadline) * region.tick_s)
    return DeadlineRun(
        region=region.name, cost=outcome.cost, least_cost=float(least_cost), late=outcome.finished_s is None
    )


def _missed(runs: Sequence[DeadlineRun], slack: float) -> Row:
    late = sum(run.late for run in runs)
    return Row(
        name=f"deadlines missed at slack {slack:g}",
        subject=Spread.one(late, ""),
        bound_name=f"of {len(runs)} jobs",
        result=float(late),
        target=Target(at_most=0.0),
    )


def _cost(runs: Sequence[DeadlineRun], slack: float) -> Row:
    by_region: dict[str, list[DeadlineRun]] = {}
    for run in runs:
        by_region.setdefault(run.region, []).append(run)
    means = ", ".join(f"{name} {_ratio(own):.3f}" for name, own in by_region.items())
    return replace(
        _costs(runs, f"cost at slack {slack:g}"), target=Target(at_most=COST), notes=f"{_worst(runs)}; {means}"
    )


def _peer_cost(runs: Sequence[DeadlineRun], name: str) -> Row:
    late = sum(run.late for run in runs)
    return replace(
        _costs(runs, f"cost at slack {PEER_SLACK:g}, {name}"),
        notes=f"{len(runs)} jobs; {_worst(runs)}; {late} deadlines missed",
    )


def _costs(runs: Sequence[DeadlineRun], name: str) -> Row:
    return Row(
        name=name,
        subject=Spread.of([run.cost for run in runs], "$"),
        bound_name="offline optimum",
        bound=Spread.of([run.least_cost for run in runs], "$"),
        result=_ratio(runs),
    )


def _worst(runs: Sequence[DeadlineRun]) -> str:
    return f"worst job {max(run.cost / run.least_cost for run in runs):.2f}"


def _ratio(runs: Sequence[DeadlineRun]) -> float:
    """Mean cost divided by the mean of the least costs."""
    return fmean(run.cost for run in runs) / fmean(run.least_cost for run in runs)


def _beginnings(region: Region, count: int, ticks: int) -> list[int]:
    """Random beginnings with a given number of ticks after them. Each region has its own generator with a fixed seed."""
    rng = Random(f"{SEED} {region.name}")
    return [rng.randrange(region.ticks - ticks - 1) for _ in range(count)]
