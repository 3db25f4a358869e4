"""Which checkpoints a policy keeps: by the contract's worked example, and what is never removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.checkpoint import Checkpoint, CheckpointPurpose, CheckpointUse
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, ExperimentId, JobId, TaskId, TrialId
from resolute_master.domain.trial import CheckpointRef, Trial
from resolute_master.lifecycle.checkpoints import Policy, kept, removable

START = datetime(2026, 1, 1, tzinfo=UTC)
METRICS = {"1": None, "2": None, "3": 0.6, "4": 0.5, "5": 0.4, "6": None, "7": 0.2, "8": 0.3, "9": None, "10": None}


def a_checkpoint(number: int) -> Checkpoint:
    trial = 1 if number <= 5 else 2
    return Checkpoint(
        uuid=str(number),
        task_id=TaskId(f"1.{trial}"),
        allocation_id=AllocationId(f"1.{trial}.1"),
        trial_id=TrialId(trial),
        experiment_id=ExperimentId(1),
        run_id=1,
        state=CheckpointState.COMPLETED,
        steps_completed=number if trial == 1 else number - 5,
        reported_at=START + timedelta(seconds=number),
        resources={"w": 1},
        metadata={},
    )


def a_trial(id_: int, latest: int, state: ExperimentState = ExperimentState.COMPLETED) -> Trial:
    return Trial(
        id=TrialId(id_),
        experiment_id=ExperimentId(1),
        job_id=JobId("job"),
        task_id=TaskId(f"1.{id_}"),
        request_id=str(id_),
        state=state,
        hparams={},
        seed=0,
        started_at=START,
        latest_checkpoint=CheckpointRef(uuid=str(latest), steps_completed=5),
    )


CHECKPOINTS = [a_checkpoint(number) for number in range(1, 11)]
TRIALS = [a_trial(1, 5), a_trial(2, 10)]


def a_policy(experiment_best: int, trial_best: int, trial_latest: int, **metrics: float | None) -> Policy:
    return Policy(
        experiment_best=experiment_best,
        trial_best=trial_best,
        trial_latest=trial_latest,
        metrics={**METRICS, **metrics},
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((0, 0, 0), set()),
        ((2, 0, 0), {7, 8}),
        ((0, 1, 0), {5, 7}),
        ((0, 0, 1), {5, 10}),
        ((0, 0, 3), {3, 4, 5, 8, 9, 10}),
        ((2, 1, 0), {5, 7, 8}),
        ((2, 0, 1), {5, 7, 8, 10}),
        ((0, 1, 1), {5, 7, 10}),
        ((2, 1, 1), {5, 7, 8, 10}),
    ],
)
def test_the_example_of_the_contract(counts: tuple[int, int, int], expected: set[int]) -> None:
    assert kept(CHECKPOINTS, a_policy(*counts), smaller_is_better=True) == {str(number) for number in expected}


def test_larger_may_be_better_and_of_equals_the_older_wins() -> None:
    policy = a_policy(1, 0, 0, **{"8": 0.6})
    assert kept(CHECKPOINTS, policy, smaller_is_better=False) == {"3"}
    assert kept(CHECKPOINTS, a_policy(1, 0, 0, **{"7": float("nan")}), smaller_is_better=True) == {"8"}


def test_what_somebody_needs_is_never_removed() -> None:
    nothing = a_policy(0, 0, 0)
    everything = {c.uuid for c in CHECKPOINTS}
    assert {c.uuid for c in removable(CHECKPOINTS, TRIALS, nothing, smaller_is_better=True)} == everything
    running = [replace(TRIALS[0], state=ExperimentState.ACTIVE), TRIALS[1]]
    assert {c.uuid for c in removable(CHECKPOINTS, running, nothing, smaller_is_better=True)} == everything - {"5"}
    warm = [replace(TRIALS[0], warm_start_checkpoint="7"), TRIALS[1]]
    assert {c.uuid for c in removable(CHECKPOINTS, warm, nothing, smaller_is_better=True)} == everything - {"7"}
    use = CheckpointUse(trial_id=TrialId(9), purpose=CheckpointPurpose.INFERENCE)
    used = [replace(c, used_by=(use,)) if c.uuid == "2" else c for c in CHECKPOINTS]
    assert {c.uuid for c in removable(used, TRIALS, nothing, smaller_is_better=True)} == everything - {"2"}


def test_what_was_reported_after_the_metrics_were_read_stays() -> None:
    late = replace(a_checkpoint(10), uuid="11", steps_completed=1)
    found = removable([*CHECKPOINTS, late], TRIALS, a_policy(0, 0, 0), smaller_is_better=True)
    assert "11" not in {c.uuid for c in found}
