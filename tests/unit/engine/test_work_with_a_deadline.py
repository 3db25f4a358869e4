"""How fast a trial trains, as its reports tell, and what that makes of the work that is left."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from resolute.wire.states import ExperimentState, TaskType
from resolute_master.decision.markets import START_S, work_of
from resolute_master.decision.view import PoolView
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import AllocationId, ExperimentId, JobId, PoolName, TaskId, TrialId, UserId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import CheckpointRef, Pace, Trial
from resolute_master.engine.pool_view import pool_view
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Market, Offer, OfferBelief, PoolScaling
from resolute_provisioner.planning.deadline import Work
from support.cluster import T0
from support.engines import a_config

HOUR = 3600.0


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def a_pace(*reports: tuple[int, float], run: int = 1) -> Pace:
    (steps, seconds), *rest = reports
    pace = Pace(run_id=run, first_steps=steps, first_at=at(seconds), steps=steps, at=at(seconds))
    for steps, seconds in rest:
        pace = pace.reported(run, steps, at(seconds))
    return pace


# ---------------------------------------------------------------------------------------------------------------- pace


def test_two_reports_make_a_pace_and_each_further_one_makes_it_longer() -> None:
    assert a_pace((10, 0.0)).step_s is None
    assert a_pace((10, 0.0), (20, 50.0)).step_s == 5.0
    longer = a_pace((10, 0.0), (20, 50.0), (40, 90.0))
    assert (longer.step_s, longer.interval_s) == (3.0, 40.0)


def test_a_new_run_keeps_the_pace_of_the_one_before_until_it_has_its_own() -> None:
    before = a_pace((0, 0.0), (10, 50.0))
    begun = before.reported(2, 8, at(500.0))
    assert (begun.run_id, begun.step_s) == (2, 5.0), "the time between the runs is not training"
    assert begun.reported(2, 12, at(508.0)).step_s == 2.0


@pytest.mark.parametrize(("run", "steps", "seconds"), [(1, 30, 60.0), (2, 20, 60.0), (2, 30, 40.0)])
def test_reports_that_come_late_or_twice_change_nothing(run: int, steps: int, seconds: float) -> None:
    pace = a_pace((10, 0.0), (20, 50.0), run=2)
    assert pace.reported(run, steps, at(seconds)) == pace


# ---------------------------------------------------------------------------------------------------------------- work

ALLOCATION = Allocation(
    id=AllocationId("1.a.1"),
    task_id=TaskId("1.a"),
    task_type=TaskType.TRIAL,
    job_id=JobId("j"),
    pool=PoolName("default"),
    slots_needed=1,
    requested_at=T0,
    trial_id=TrialId(1),
    deadline=at(100 * HOUR),
)
TRIAL = Trial(
    id=TrialId(1),
    experiment_id=ExperimentId(1),
    job_id=JobId("j"),
    task_id=TaskId("1.a"),
    request_id="a",
    state=ExperimentState.ACTIVE,
    hparams={},
    seed=1,
    started_at=T0,
    run_id=1,
    reported_run=1,
)
FIRM = Offer(offer_id="firm", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1)
POOL = PoolScaling(pool="default", offers=(FIRM,))


def state_of(trial: Trial, *, length: dict[str, int] | None = None, estimate: str | None = None) -> ClusterState:
    config = a_config(**({"estimated_duration": estimate} if estimate else {}))
    if length is not None:
        config["searcher"] = {**config["searcher"], "max_length": length}
    experiment = Experiment(
        id=ExperimentId(1),
        job_id=JobId("j"),
        owner=UserId(1),
        workspace_id=1,
        project_id=1,
        name="x",
        configuration=written(config),
        original_config="",
        context_hash="",
        state=ExperimentState.ACTIVE,
        started_at=T0,
    )
    return ClusterState([trial, experiment, ALLOCATION])


def seen(state: ClusterState, now: datetime = T0) -> PoolView:
    return pool_view(state, PoolSnapshot.build(PoolPolicy(name=PoolName("default"), scaling=POOL), now=now), ())


def waiting(trial: Trial = TRIAL, **experiment: Any) -> Work:
    found = work_of(seen(state_of(trial, **experiment)), POOL, ALLOCATION, runs=False)
    return found or pytest.fail("it has a deadline")


def running(trial: Trial, now: datetime, **experiment: Any) -> Work:
    found = work_of(seen(state_of(trial, **experiment), now), POOL, ALLOCATION, runs=True)
    return found or pytest.fail("it has a deadline")


BATCHES = {"batches": 1000}
PACED = replace(TRIAL, pace=a_pace((0, 0.0), (100, 500.0)), steps_completed=100)


def test_before_there_is_a_pace_the_estimate_counts_and_without_one_nothing_is_known() -> None:
    assert waiting(length=BATCHES).remaining_s is None
    assert waiting(length=BATCHES, estimate="2h").remaining_s == 2 * HOUR


def test_the_measured_pace_goes_before_the_estimate() -> None:
    assert running(PACED, at(500), length=BATCHES, estimate="99h").remaining_s == 900 * 5.0


def test_who_waits_has_what_was_saved_and_who_runs_what_was_done() -> None:
    saved = replace(PACED, latest_checkpoint=CheckpointRef(uuid="u", steps_completed=60))
    assert waiting(saved, length=BATCHES).remaining_s == pytest.approx(940 * 5.0)
    runs = running(saved, at(500), length=BATCHES)
    assert (runs.remaining_s, runs.unsaved_s) == (pytest.approx(900 * 5.0), 40 * 5.0)


def test_between_two_reports_it_goes_on_and_no_longer_than_usual() -> None:
    assert running(PACED, at(600), length=BATCHES).remaining_s == pytest.approx(880 * 5.0)
    usual_s = PACED.pace.interval_s if PACED.pace else 0.0
    silent = running(PACED, at(500 + 10 * usual_s), length=BATCHES)
    assert silent.remaining_s == pytest.approx(800 * 5.0)


def test_a_length_in_epochs_is_known_by_the_progress() -> None:
    halfway = replace(PACED, progress=0.25)
    assert running(halfway, at(500), length={"epochs": 3}).remaining_s == pytest.approx(300 * 5.0)


def test_what_older_runs_did_past_the_checkpoint_does_not_count() -> None:
    lost = replace(PACED, run_id=2, latest_checkpoint=CheckpointRef(uuid="u", steps_completed=60))
    assert running(lost, at(9000), length=BATCHES).remaining_s == pytest.approx(940 * 5.0)


def test_a_restart_takes_the_boot_that_was_seen_and_a_start() -> None:
    known = {"firm": OfferBelief(offer_id="firm", join_time_s=200.0)}
    found = work_of(replace(seen(state_of(TRIAL)), beliefs=known), POOL, ALLOCATION, runs=False)
    assert found is not None
    assert found.restart_s == 200.0 + START_S


def test_without_a_deadline_there_is_nothing_to_know() -> None:
    assert work_of(seen(state_of(TRIAL)), POOL, replace(ALLOCATION, deadline=None), runs=False) is None
