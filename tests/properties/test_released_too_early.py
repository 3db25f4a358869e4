"""What learnt idle periods and consolidation cost in waiting at most, and the accounting of a simulation recomputed from its
events."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.trace_job import TraceJob
from resolute_master.forecast.work import Overheads
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling
from resolute_sim.twin import twin
from resolute_sim.twin.figures import Report
from resolute_sim.twin.twin import Setting, simulate
from support.effort import examples

BOOT_S = 180.0
LONGEST_WAIT = 1.5
"""Boots: half of one for slots that were expected to become free, and one for the machine that is bought then."""

OFFERS = tuple(
    Offer(
        offer_id=f"o{slots}",
        instance_type="t",
        zone="z",
        market=Market.ON_DEMAND,
        slots=slots,
        price_per_hour=1.0 * slots,
    )
    for slots in (1, 4)
)
SCALING = PoolScaling(pool="p", offers=OFFERS, max_instances=500, idle_learnt=True, consolidation=Consolidation())
POOL = PoolPolicy(name=PoolName("p"), scaling=SCALING)

GAPS = st.lists(
    st.tuples(
        st.sampled_from((0.0, 1.0, 20.0, 61.0, 91.0, 185.0, 400.0, 4000.0)),
        st.sampled_from((5.0, 60.0, 100.0, 540.0, 2000.0, 9000.0)),
        st.sampled_from((1, 1, 1, 1, 2, 4)),
    ),
    min_size=1,
    max_size=60,
)


def trace(rows: list[tuple[float, float, int]]) -> tuple[TraceJob, ...]:
    found, at_s = [], 0.0
    for number, (gap_s, length_s, slots) in enumerate(rows):
        at_s += gap_s
        found.append(TraceJob(job_id=f"j{number}", submit_s=at_s, duration_s=length_s, slots=slots, group="g"))
    return tuple(found)


@settings(max_examples=examples(60))
@given(rows=GAPS)
def test_no_job_waits_for_a_machine_that_was_just_given_back_longer_than_the_bound(
    rows: list[tuple[float, float, int]],
) -> None:
    """Without moves each job waits once. Wherever gaps lie, also just behind the idle period, it is a boot and a half at most."""
    still = replace(POOL, scaling=replace(SCALING, consolidation=None))
    report = simulate(Setting(pool=still, jobs=trace(rows), boot_s=BOOT_S), "resolute")
    assert report.figures.wait_max_s <= LONGEST_WAIT * BOOT_S


@settings(max_examples=examples(40))
@given(rows=GAPS)
def test_with_moves_each_start_of_a_job_waits_no_longer_than_the_bound(rows: list[tuple[float, float, int]]) -> None:
    saves = Overheads(checkpoint_every_s=300.0)
    jobs = trace(rows)
    log, report = played(Setting(pool=POOL, jobs=jobs, boot_s=BOOT_S, overheads=saves))
    runs: defaultdict[str, int] = defaultdict(int)
    for _, word, subject in log:
        runs[subject.split()[0].split(".")[0]] += word == "start"
    assert report.figures.wait_max_s <= LONGEST_WAIT * BOOT_S * max(runs.values())


Log = list[tuple[float, str, str]]


def played(setting: Setting) -> tuple[Log, Report]:
    log: Log = []
    with pytest.MonkeyPatch.context() as patch:
        note = twin._Digest.note

        def heard(self: twin._Digest, at_s: float, word: str, subject: str) -> None:
            log.append((at_s, word, subject))
            note(self, at_s, word, subject)

        patch.setattr(twin._Digest, "note", heard)
        return log, simulate(setting, "resolute")


@settings(max_examples=examples(40))
@given(rows=GAPS, seed=st.integers(0, 3))
def test_the_cost_and_its_parts_follow_from_the_events_alone(rows: list[tuple[float, float, int]], seed: int) -> None:
    saves = Overheads(checkpoint_every_s=300.0)
    jobs = trace(rows)
    log, report = played(Setting(pool=POOL, jobs=jobs, boot_s=BOOT_S, overheads=saves, seed=seed))
    slots_of = {f"{number:07d}": job.slots for number, job in enumerate(jobs)}
    launched, joined, ended, sizes = {}, {}, {}, {}
    begun: dict[str, tuple[float, str]] = {}
    held: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for at_s, word, subject in log:
        name = subject.split()[0]
        match word:
            case "launch":
                launched[name], sizes[name] = at_s, int(subject.split()[1].removeprefix("o"))
            case "join":
                joined[name] = at_s
            case "start":
                begun[name] = (at_s, subject.split()[1])
            case "end":
                started_s, machine = begun.pop(name)
                held[machine].append((started_s, at_s, slots_of[name.split(".")[0]]))
            case _ if name in launched and word != "drain":
                ended[name] = at_s
    assert begun == {} and ended.keys() == launched.keys()
    cost = boot = empty = half = in_use = 0.0
    for name, at_s in launched.items():
        life_s = ended[name] - at_s
        rate = sizes[name] * max(life_s, 60.0) / life_s / 3600.0 if life_s else 0.0
        cost += sizes[name] * max(life_s, 60.0) / 3600.0
        there_s = joined.get(name, ended[name])
        boot += rate * (there_s - at_s) if life_s else sizes[name] * 60.0 / 3600.0
        moments = sorted({there_s, ended[name], *(t for a, b, _ in held[name] for t in (a, b))})
        for begin_s, end_s in itertools.pairwise(moments):
            used = sum(slots for a, b, slots in held[name] if a <= begin_s and end_s <= b)
            empty += rate * (end_s - begin_s) * (used == 0)
            half += rate * (end_s - begin_s) * (sizes[name] - used) / sizes[name] * (used > 0)
            in_use += rate * (end_s - begin_s) * used / sizes[name]
    found = report.figures
    assert found.cost == pytest.approx(cost)
    assert found.cost_boot == pytest.approx(boot, abs=1e-6)
    assert found.cost_empty == pytest.approx(empty, abs=1e-6)
    assert found.cost_half_empty == pytest.approx(half, abs=1e-6)
    assert found.cost_useful + found.cost_repeated == pytest.approx(in_use, abs=1e-6)
    parts = found.cost_useful + found.cost_repeated + found.cost_boot + found.cost_empty + found.cost_half_empty
    assert parts == pytest.approx(found.cost)
