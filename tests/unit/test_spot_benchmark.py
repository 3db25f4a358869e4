"""What the spot benchmark measures with: its bounds are bounds, and its world keeps the rules' promises on other series."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from benchmarks import spot, spot_optimum
from benchmarks.spot_mix import mix
from benchmarks.spot_series import Region, Series, regions, synthetic
from benchmarks.spot_world import ON_DEMAND_PRICE, SPOT_PRICE, World

TICK_S = 195.0
SEEDS = range(6)


def a_region(rng: Random, *, zones: int, ticks: int) -> Region:
    drawn = [tuple(rng.random() < 0.6 for _ in range(ticks)) for _ in range(zones)]
    return Region(name="r", zones=tuple(Series(zone=f"z{i}", tick_s=TICK_S, up=up) for i, up in enumerate(drawn)))


def small(seed: int) -> Region:
    """Two days of two zones."""
    (region,) = synthetic(Random(seed), ticks=900, sizes=(2,))
    return region


# ------------------------------------------------------------------------------------------------ bounds by brute force


def every_course(region: Region, ticks: int, *, firm: bool) -> list[tuple[int, float, int]]:
    """(ticks trained, cost, ticks gone by) after each tick of each possible course of action; prices 1 and 3."""
    places = [None, *range(len(region.zones)), *(["firm"] if firm else [])]
    found = []
    for course in product(places, repeat=ticks):
        before, trained, cost = None, 0, 0.0
        for tick, place in enumerate(course):
            if isinstance(place, int) and not region.zones[place].up[tick]:
                break
            trained += place is not None and place == before
            cost += 0.0 if place is None else 3.0 if place == "firm" else 1.0
            found.append((trained, cost, tick + 1))
            before = place
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_course_of_action_trains_more_or_ends_sooner_than_the_oracle(seed: int) -> None:
    region = a_region(Random(seed), zones=2, ticks=7)
    courses = every_course(region, 7, firm=False)
    assert spot_optimum.most_work(region) == max(trained for trained, _, _ in courses)
    for length in (1, 2, 3):
        ends = [elapsed for trained, _, elapsed in courses if trained >= length]
        (end,) = spot_optimum.soonest_ends(region, np.array([0]), length)
        assert end == min(ends, default=-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_course_of_action_is_cheaper_than_the_offline_optimum(seed: int) -> None:
    region = a_region(Random(seed), zones=1, ticks=8)
    for length, deadline in ((2, 4), (4, 8), (5, 7)):
        costs = [
            cost
            for trained, cost, elapsed in every_course(region, deadline, firm=True)
            if trained >= length and elapsed <= deadline
        ]
        (least,) = spot_optimum.least_cost(region, np.array([0]), length, deadline, spot=1.0, on_demand=3.0)
        assert least == pytest.approx(min(costs))


# ------------------------------------------------------------------------------------------------- the rules in the world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slack", [1.05, 1.2, 2.0])
def test_no_deadline_is_missed_and_nothing_is_cheaper_than_the_optimum(seed: int, slack: float) -> None:
    for run in spot.deadline_runs(small(seed), slack, 2, spot.INTERRUPTIONS_PER_HOUR, hours=12.0):
        assert not run.late
        assert run.cost >= run.least_cost * 0.999


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_kept_comes_close_to_the_oracle_and_never_above(seed: int) -> None:
    found = spot.goodput(small(seed))
    assert 0.9 < found.ratio <= 1.0


def test_an_interruption_starts_the_replacement_at_once_in_the_other_zone() -> None:
    first = tuple(tick < 20 for tick in range(60))
    region = Region(
        name="r",
        zones=(
            Series(zone="a", tick_s=TICK_S, up=first),
            Series(zone="b", tick_s=TICK_S, up=(True,) * 60),
        ),
    )
    outcome = World(region=region, begin_s=0.0, length_s=40 * TICK_S).play(59 * TICK_S)
    assert outcome.interruptions == 1
    # Forty ticks of work and two starts of a tick each: nothing was lost between the two machines.
    assert outcome.finished_s == pytest.approx(42 * TICK_S)


# ------------------------------------------------------------------------------------------------------------ the series


def test_traces_are_read_and_long_ticks_are_cut(tmp_path: Path) -> None:
    (tmp_path / "spot").mkdir()
    body = {"gap_seconds": 600, "rle": [[1, 2], [0, 1]]}
    for zone in ("us-west-2a", "us-west-2b"):
        (tmp_path / "spot" / f"avail_1-node_aws-10-26-2022__{zone}_k80_1.json").write_text(json.dumps(body))
    (region,), origin = regions({"RESOLUTE_TRACES": str(tmp_path)})
    assert (region.name, [zone.zone for zone in region.zones]) == ("us-west-2 k80_1 2022", ["us-west-2a", "us-west-2b"])
    assert (region.tick_s, region.zones[0].up) == (200.0, (True,) * 6 + (False,) * 3)
    assert "recorded" in origin
    assert (region.zones[0].changes_at(0.0), region.zones[0].changes_at(1300.0)) == (1200.0, 1800.0)


def test_without_traces_the_series_are_synthetic_and_the_rows_say_so() -> None:
    found, origin = regions({})
    assert "synthetic" in origin
    assert found == regions({})[0], "the same at every run"


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="RESOLUTE_TRACES"):
        regions({"RESOLUTE_TRACES": str(tmp_path)})


def test_a_mix_pays_for_spot_alone_while_there_is_some_and_for_what_outages_force() -> None:
    ticks, tick_s = 2_000, 195.0
    always = Region(name="r", zones=(Series(zone="z", tick_s=tick_s, up=(True,) * ticks),))
    found = mix(always, jobs=8, days=0.1)
    assert (found.forced, found.cost_ratio) == (0.0, 1.0)
    # From the second hour on there is nothing for two hours.
    up = tuple(not 3_600.0 <= tick * tick_s < 10_800.0 for tick in range(ticks))
    found = mix(Region(name="r", zones=(Series(zone="z", tick_s=tick_s, up=up),)), jobs=8, days=0.1)
    busy = found.on_demand.busy_slots
    at = [up[int(second // tick_s)] for second in range(int(busy[-1][0]) + 1)]
    slots = [0.0] * len(at)
    for (from_s, count), (until_s, _) in pairwise(busy):
        for second in range(round(from_s), round(until_s)):
            slots[second] = count
    slot_hours = sum(count for count, there in zip(slots, at, strict=True) if not there) / 3600.0
    assert slot_hours > 0.5
    assert found.forced == pytest.approx(slot_hours * (ON_DEMAND_PRICE - SPOT_PRICE), rel=0.01)
    assert found.spot.figures.wait_max_s > found.both.figures.wait_max_s
    assert [row.met for row in found.rows()] == [found.cost_ratio <= 1.15, found.wait_ratio <= 1.5]
