"""The twin on small traces whose results are known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from random import Random

import pytest

from resolute.errors import InvalidInput
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.decide import Production
from resolute_master.forecast.pool import Decision
from resolute_master.forecast.pool_simulation import NoProgress
from resolute_master.forecast.trace_job import TraceJob
from resolute_master.forecast.work import Overheads
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.capacity import CapacityTrace
from resolute_sim.twin.figures import Report
from resolute_sim.twin.synthetic import synthetic_jobs
from resolute_sim.twin.twin import POLICIES, Setting, check_prices, simulate


def _offer(size: int, market: Market = Market.ON_DEMAND, price: float = 3.6) -> Offer:
    return Offer(
        offer_id=f"{market}-{size}",
        instance_type=f"t{size}",
        zone="z",
        market=market,
        slots=size,
        price_per_hour=price * size,
    )


def _pool(*offers: Offer, **scaling: object) -> PoolPolicy:
    base = PoolScaling(
        pool="p", offers=offers or tuple(map(_offer, (1, 4, 8))), max_instances=100, idle_timeout_s=300.0
    )
    return PoolPolicy(name=PoolName("p"), scaling=replace(base, **scaling))  # type: ignore[arg-type]


def _job(name: str, submit_s: float, duration_s: float, slots: int = 1, **more: object) -> TraceJob:
    base = TraceJob(job_id=name, submit_s=submit_s, duration_s=duration_s, slots=slots, group="g")
    return replace(base, **more)  # type: ignore[arg-type]


def _played(setting: Setting, policy: str = "resolute") -> Report:
    return simulate(setting, policy)


def test_one_job_waits_for_its_boot_and_its_machine_idles_once() -> None:
    report = _played(Setting(pool=_pool(), jobs=(_job("a", 10.0, 1000.0),)))
    found = report.figures
    assert (found.wait_mean_s, found.wait_p95_s, found.launches, found.jobs_completed) == (180.0, 180.0, 1, 1)
    assert found.cost == pytest.approx((180.0 + 1000.0 + 300.0) / 1000.0)
    assert found.cost_lower_bound == pytest.approx(1.0) and found.excess == pytest.approx(0.48)
    assert found.jct_ratio == pytest.approx(1.18) and found.goodput == 1.0
    assert found.utilisation == pytest.approx(1000.0 / 1480.0)
    (span,) = report.spans
    assert (span.launched_s, span.joined_s, span.ended_s, span.slots, span.cause) == (10.0, 190.0, 1490.0, 1, "idle")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_completes_every_shape(policy: str) -> None:
    jobs = tuple(_job(f"j{slots}", float(slots), 600.0, slots) for slots in (1, 2, 4, 8, 12, 16, 24))
    found = _played(Setting(pool=_pool(), jobs=jobs), policy).figures
    assert found.jobs_completed == len(jobs) and found.cost >= found.cost_lower_bound


def test_all_policies_are_held_against_the_same_bound() -> None:
    """Also those that know machines of one size only, however dear a slot of that size is."""
    setting = Setting(pool=_pool(_offer(1), _offer(8, price=7.2)), jobs=(_job("a", 0.0, 1000.0),))
    bounds = {policy: _played(setting, policy).figures.cost_lower_bound for policy in POLICIES}
    assert bounds == pytest.approx(dict.fromkeys(POLICIES, 1.0))


def test_an_offer_without_a_price_is_refused_unless_a_series_tells_it() -> None:
    unpriced = replace(_offer(4, Market.SPOT), price_per_hour=None)
    series = CapacityTrace(name="s", kind="price", values=(2.0,), ends=(60.0,), offer_id=unpriced.offer_id)
    with pytest.raises(InvalidInput, match="there is no price of spot-4, and a cost without it"):
        check_prices(_pool(_offer(1), unpriced), ())
    check_prices(_pool(_offer(1), unpriced), (series,))


def test_the_scale_decider_of_the_predecessor_ignores_free_room_and_keeps_machines_for_twenty_minutes() -> None:
    """Three jobs of five slots are fifteen slots: two machines of eight are asked for, though three are needed."""
    jobs = tuple(_job(name, 0.0, 100.0, 5) for name in "abc")
    report = _played(Setting(pool=_pool(), jobs=jobs), "determined")
    assert report.figures.launches == 3
    assert sorted(span.launched_s for span in report.spans) == [5.0, 5.0, 185.0]  # ticks of five seconds
    assert all(span.slots == 8 and span.ended_s - (span.joined_s or 0.0) >= 1200.0 for span in report.spans)


def test_first_fit_takes_the_cheapest_machine_that_has_room() -> None:
    jobs = (_job("wide", 0.0, 5000.0, 2), _job("narrow", 300.0, 100.0, 1))
    report = _played(Setting(pool=_pool(), jobs=jobs), "packing")
    assert [span.slots for span in report.spans] == [4] and report.figures.wait_mean_s == 90.0


def test_an_interruption_with_notice_loses_no_progress_and_one_without_goes_back_to_the_checkpoint() -> None:
    trace = CapacityTrace(name="t", kind="availability", values=(1.0, 0.0), ends=(3000.0, 1e9), offer_id="spot-1")
    pool = _pool(_offer(1, Market.SPOT, 1.0), _offer(1))
    setting = Setting(pool=pool, jobs=(_job("a", 0.0, 4000.0),), capacity=(trace,))
    noticed = _played(setting).figures
    assert (noticed.interruptions, noticed.lost_slot_s, noticed.launches) == (1, 80.0, 2), "a restart and two saves"
    sudden = _played(replace(setting, overheads=Overheads(notice_s=0.0, checkpoint_every_s=1000.0))).figures
    assert (sudden.interruptions, sudden.lost_slot_s) == (1, 3000.0 - 180.0 - 2000.0 + 60.0)
    assert noticed.jobs_completed == sudden.jobs_completed == 1


def test_a_refused_offer_is_followed_by_the_next_and_the_lesson_is_kept() -> None:
    trace = CapacityTrace(name="t", kind="availability", values=(0.0,), ends=(1e9,), offer_id="spot-1")
    setting = Setting(
        pool=_pool(_offer(1, Market.SPOT, 1.0), _offer(1)), jobs=(_job("a", 0.0, 100.0),), capacity=(trace,)
    )
    assert _played(setting).figures.wait_mean_s == 181.0


@pytest.mark.parametrize("kind", ["availability", "price"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_course_ends_with_its_work_though_the_market_moves_for_ever(policy: str, kind: str) -> None:
    """The series begin anew each 900 s; the machines that outlive the work are paid until its end and no longer."""
    values = {"availability": (50.0, 49.0), "price": (1.0, 0.9)}[kind]
    series = CapacityTrace(name="t", kind=kind, values=values, ends=(600.0, 900.0), offer_id="spot-8")
    pool = _pool(_offer(8, Market.SPOT, 1.0), _offer(8), min_instances=1)
    report = _played(Setting(pool=pool, jobs=(_job("a", 100.0, 5000.0, 8),), capacity=(series,)), policy)
    assert report.figures.jobs_completed == 1 and {span.launched_s for span in report.spans} <= {0.0, 1.0, 100.0}
    after_s = max(span.ended_s for span in report.spans) - report.busy_slots[-1][0]
    assert after_s == (
        300.0 if policy == "packing" else 0.0
    )  # which has no minimum and ends its machine when it has idled


@pytest.mark.parametrize("policy", POLICIES)
def test_what_stands_is_paid_until_the_last_job_ends_with_and_without_a_series(policy: str) -> None:
    level = CapacityTrace(name="t", kind="price", values=(8.0,), ends=(1e7,), offer_id="spot-8")
    pool = _pool(_offer(8, Market.SPOT, 1.0), min_instances=1)
    setting = Setting(pool=pool, jobs=(_job("a", 100.0, 5000.0, 8), _job("b", 200.0, 100.0, 8)))
    alone, beside = _played(setting, policy), _played(replace(setting, capacity=(level,)), policy)
    assert beside.figures.cost == pytest.approx(alone.figures.cost) and beside.spans == alone.spans
    if policy == "static":
        assert [(span.launched_s, span.ended_s) for span in alone.spans] == [(0.0, 5180.0)] * 2


def test_a_fixed_fleet_asks_again_for_what_was_refused_and_taken_back() -> None:
    series = CapacityTrace(
        name="t", kind="availability", values=(0.0, 1.0, 0.0, 1.0), ends=(90.0, 1000.0, 2000.0, 1e9), offer_id="spot-8"
    )
    setting = Setting(pool=_pool(_offer(8, Market.SPOT, 1.0)), jobs=(_job("a", 0.0, 3000.0, 8),), capacity=(series,))
    report = _played(setting, "static")
    assert [(span.launched_s, span.cause) for span in report.spans] == [
        (120.0, "taken back"),
        (2020.0, "end of the simulation"),
    ]
    assert report.figures.jobs_completed == 1


@pytest.mark.parametrize("policy", ["resolute", "static"])
def test_work_that_the_series_never_let_get_ahead_is_told_and_not_waited_for(policy: str) -> None:
    none = CapacityTrace(name="t", kind="availability", values=(0.0,), ends=(600.0,), offer_id="spot-8")
    setting = Setting(pool=_pool(_offer(8, Market.SPOT, 1.0)), jobs=(_job("a", 0.0, 60.0, 8),), capacity=(none,))
    with pytest.raises(
        InvalidInput, match=rf"--policy {policy}: 1 gang\(s\) are pending.*without progress since second 0"
    ):
        _played(setting, policy)


def test_what_never_saves_is_moved_neither_to_fewer_machines_nor_back_to_spot() -> None:
    half_empty = (_job("short", 0.0, 600.0, 7), _job("long", 0.0, 50_000.0, 1))
    sizes = Setting(pool=_pool(_offer(1), _offer(8), consolidation=Consolidation()), jobs=half_empty)
    late = CapacityTrace(name="t", kind="availability", values=(0.0, 9.0), ends=(600.0, 1e9), offer_id="spot-1")
    back = SpotFallback(return_after_s=600.0)
    markets = Setting(
        pool=_pool(_offer(1, Market.SPOT, 1.0), _offer(1), spot_fallback=back),
        jobs=(_job("long", 0.0, 50_000.0),),
        capacity=(late,),
    )
    for setting in (sizes, markets):
        saving = _played(setting)
        assert "drained" in {span.cause for span in saving.spans} and saving.figures.lost_slot_s > 0.0
        never = _played(replace(setting, overheads=Overheads(checkpoint_every_s=1e9)))
        assert "drained" not in {span.cause for span in never.spans}
        assert never.figures.lost_slot_s == 0.0 and never.figures.goodput == 1.0


def test_consolidation_moves_what_is_left_onto_a_machine_of_its_size() -> None:
    jobs = (_job("short", 0.0, 600.0, 7), _job("long", 0.0, 50_000.0, 1))
    still = _played(Setting(pool=_pool(_offer(1), _offer(8)), jobs=jobs)).figures
    moved = _played(Setting(pool=_pool(_offer(1), _offer(8), consolidation=Consolidation()), jobs=jobs))
    assert still.lost_slot_s == 0.0 and moved.figures.lost_slot_s == 70.0
    assert moved.figures.cost < 0.4 * still.cost and moved.figures.jobs_completed == 2
    assert "drained" in {span.cause for span in moved.spans}


def test_cheap_machines_stay_warm_as_long_as_their_idle_time_is_cheap() -> None:
    jobs = (_job("a", 0.0, 10.0), _job("b", 2000.0, 10.0))
    assert _played(Setting(pool=_pool(), jobs=jobs)).figures.launches == 2
    assert _played(Setting(pool=_pool(max_idle_cost=3.6), jobs=jobs)).figures.launches == 1


def test_more_important_work_makes_less_important_work_save_and_go_on_later() -> None:
    pool = replace(_pool(_offer(1), max_instances=1), preemption=True)
    jobs = (_job("low", 0.0, 1000.0, priority=50), _job("high", 500.0, 100.0, priority=1))
    found = _played(Setting(pool=pool, jobs=jobs)).figures
    assert found.jobs_completed == 2 and found.lost_slot_s == 70.0 and found.interruptions == 0


def test_a_job_that_the_pool_can_never_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"job 'wide' asks for 3 slots, and pool 'p' can never give them.*1 slots"):
        _played(Setting(pool=_pool(_offer(1), max_instances=2), jobs=(_job("wide", 0.0, 1.0, 3),)))


def test_a_job_that_its_max_slots_keep_out_is_refused() -> None:
    def wide(max_slots: int) -> Setting:
        return Setting(pool=_pool(_offer(8)), jobs=(_job("wide", 0.0, 1.0, 12, max_slots=max_slots),))

    with pytest.raises(
        InvalidInput, match=r"job 'wide', column max_slots: must be at least the 16 slots .*and is 12; "
    ):
        _played(wide(12))
    assert _played(wide(16)).figures.jobs_completed == 1


def test_only_series_of_capacity_are_blamed_for_a_job_that_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is the decider's fault: it decides nothing."""
    monkeypatch.setattr(Production, "decide", lambda self, pool: Decision(revisit_at=pool.now + timedelta(hours=1)))
    with pytest.raises(NoProgress, match="without progress since second 0"):
        _played(Setting(pool=_pool(), jobs=(_job("a", 0.0, 60.0),)))


def test_the_same_seed_gives_the_same_digest_in_another_process() -> None:
    """Python's hashes differ from process to process, and no decision may."""
    code = (
        "from resolute_master.domain.ids import PoolName\n"
        "from resolute_master.domain.pool import PoolPolicy\n"
        "from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling\n"
        "from resolute_sim.twin.synthetic import synthetic_jobs\n"
        "from resolute_sim.twin.twin import Setting, simulate\n"
        "offers = tuple(Offer(offer_id=f'on_demand-{n}', instance_type=f't{n}', zone='z', market=Market.ON_DEMAND, slots=n, "
        "price_per_hour=3.6 * n) for n in (1, 4, 8))\n"
        "scaling = PoolScaling(pool='p', offers=offers, max_instances=100, idle_timeout_s=300.0, consolidation=Consolidation())\n"
        "pool = PoolPolicy(name=PoolName('p'), scaling=scaling)\n"
        "print(simulate(Setting(pool=pool, jobs=synthetic_jobs(5, jobs=150, days=1.0)), 'resolute').figures.digest)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    here = _played(Setting(pool=_pool(consolidation=Consolidation()), jobs=synthetic_jobs(5, jobs=150, days=1.0)))
    assert {run.stdout.strip() for run in runs} == {here.figures.digest}
    other = _played(Setting(pool=_pool(consolidation=Consolidation()), jobs=synthetic_jobs(6, jobs=150, days=1.0)))
    assert other.figures.digest != here.figures.digest


def test_a_gang_on_capacity_that_comes_and_goes_is_played_to_its_end() -> None:
    """A launch may be withdrawn before the cloud has refused it."""
    random = Random(8)
    rows = [(float(random.choice([0, 1, 2, 3, 3, 4, 4])), random.randint(1, 12)) for _ in range(40)]
    offer = replace(_offer(1, Market.SPOT), instance_type="p3.2xlarge")
    ends = tuple(accumulate(61.0 * repeat for _, repeat in rows))
    values = tuple(value for value, _ in rows)
    trace = CapacityTrace(name="t", kind="availability", values=values, ends=ends, offer_id=offer.offer_id)
    job = _job("gang", 0.0, 4000.0, 4)
    report = _played(Setting(pool=_pool(offer, max_instances=8, idle_timeout_s=1200.0), jobs=(job,), capacity=(trace,)))
    assert report.figures.jobs_completed == 1
