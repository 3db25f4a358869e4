"""The Trainer as a managed trial: preempted at seeded steps, killed, resumed, and in a gang of two processes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.harness_master import FakeMaster, task_variables
from support.harness_tasks import Tasks

pytestmark = pytest.mark.needs("torch")

PROGRAM = str(Path(__file__).resolve().parents[2] / "support" / "harness_training.py")
LENGTH = 40
CONFIG = {
    "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True, "max_length": {"batches": LENGTH}},
    "min_checkpoint_period": {"batches": 15},
    "min_validation_period": {"batches": 10},
    "scheduling_unit": 1,
    "checkpoint_policy": "none",
}


def variables(master: FakeMaster, root: Path, run: int, *, latest: str | None = None, **more: Any) -> dict[str, str]:
    more.setdefault("entrypoint", [sys.executable, PROGRAM])
    return task_variables(
        master, root, run=run, hparams={"workers": 0}, config=CONFIG, latest_checkpoint=latest, **more
    )


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_lengths_of_the_search_are_trained_one_after_the_other(
    master: FakeMaster, tasks: Tasks, tmp_path: Path, expected: dict[str, dict[int, float]], killed: bool
) -> None:
    """Each is validated, saved and reported; the losses are those of one run. Killed on the way, it goes on at its length."""
    searcher = {
        "name": "async_halving",
        "metric": "loss",
        "num_rungs": 3,
        "max_trials": 4,
        "max_length": {"batches": LENGTH},
    }
    config = {**CONFIG, "searcher": searcher}
    master.stored.length, master.stored.more_lengths = 7, [20, LENGTH]
    root, run, latest = tmp_path, 1, None
    if killed:
        task = tasks.start(by_lengths(master, root, run, config))
        master.wait_until(lambda: len(master.metrics(5, "training")) >= 12)
        os.killpg(task.pid, signal.SIGKILL)
        tasks.finish(task)
        run, (_, latest) = 2, newest(master)
    ended = tasks.run(by_lengths(master, root, run, config, latest=latest))
    assert ended.code == 0, ended.err
    assert master.stored.lengths_completed == [7, 20, LENGTH]
    validations = losses(master, "validation")
    assert master.stored.completed == [validations[length] for length in (7, 20, LENGTH)]
    assert losses(master, "training") == expected["training"]
    assert {7, 20, LENGTH} <= {body["metadata"]["steps_completed"] for body in master.stored.checkpoints.values()}
    assert master.stored.acknowledged, "it leaves because it has nothing to do"


def by_lengths(
    master: FakeMaster, root: Path, run: int, config: dict[str, Any], *, latest: str | None = None
) -> dict[str, str]:
    return task_variables(
        master,
        root,
        run=run,
        hparams={"workers": 0},
        config=config,
        latest_checkpoint=latest,
        entrypoint=[sys.executable, PROGRAM],
    )


def losses(master: FakeMaster, group: str) -> dict[int, float]:
    return {step: metrics["loss"] for step, metrics in master.metrics(5, group).items()}


def newest(master: FakeMaster) -> tuple[int, str]:
    return max((body["metadata"]["steps_completed"], uuid) for uuid, body in master.stored.checkpoints.items())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """What an uninterrupted run reports."""
    master, tasks = FakeMaster().start(), Tasks()
    try:
        ended = tasks.run(variables(master, tmp_path_factory.mktemp("uninterrupted"), 1))
        assert ended.code == 0, ended.err
        return {group: losses(master, group) for group in ("training", "validation")}
    finally:
        tasks.end_all()
        master.stop()


def test_preempted_and_killed_runs_report_what_one_run_would(
    master: FakeMaster, tasks: Tasks, tmp_path: Path, expected: dict[str, dict[int, float]]
) -> None:
    """Three preemptions at seeded moments, then a kill -9, then to the end."""
    draw = random.Random(4)
    latest: str | None = None
    for run in range(1, 4):
        reach = len(master.metrics(5, "training")) + draw.randint(1, 6)
        task = tasks.start(variables(master, tmp_path, run, latest=latest))
        master.wait_until(lambda reach=reach: len(master.metrics(5, "training")) >= reach)  # type: ignore[misc]
        master.preempt(f"3.task.{run}")
        ended = tasks.finish(task)
        assert ended.code == 0, ended.err
        step, latest = newest(master)
        if step >= LENGTH:
            break
        assert max(master.metrics(5, "training")) == step and f"3.task.{run}" in master.stored.acknowledged
    task = tasks.start(variables(master, tmp_path, 4, latest=latest))
    reach = min(LENGTH - 1, newest(master)[0] + 3)
    master.wait_until(lambda: len(master.metrics(5, "training")) >= reach)
    os.killpg(task.pid, signal.SIGKILL)
    tasks.finish(task)
    ended = tasks.run(variables(master, tmp_path, 5, latest=newest(master)[1]))
    assert ended.code == 0, ended.err
    assert losses(master, "training") == expected["training"]
    assert losses(master, "validation") == expected["validation"]
    assert newest(master)[0] == LENGTH and master.stored.progress[-1] == 1.0


def test_after_a_notice_the_trainer_saves_and_trains_on_until_the_next_validation(
    master: FakeMaster, tasks: Tasks, tmp_path: Path, expected: dict[str, dict[int, float]]
) -> None:
    """A validation may take longer than the machine is there. The next run begins with it."""
    deadline = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    master.preempt("3.task.1", notice={"kind": "interruption", "deadline": deadline, "reason": "spot"})
    ended = tasks.run(variables(master, tmp_path, 1))
    assert ended.code == 0, ended.err
    saved = sorted(body["metadata"]["steps_completed"] for body in master.stored.checkpoints.values())
    assert saved == [1, 10] and master.stored.acknowledged == ["3.task.1"]
    assert losses(master, "validation") == {}
    ended = tasks.run(variables(master, tmp_path, 2, latest=newest(master)[1]))
    assert ended.code == 0, ended.err
    assert losses(master, "training") == expected["training"]
    assert losses(master, "validation") == expected["validation"]


@pytest.mark.nightly
def test_a_gang_of_two_trains_and_both_restore_their_randomness(
    master: FakeMaster, tasks: Tasks, tmp_path: Path
) -> None:
    """Two slots of one container through process_per_slot; interrupted once; equal to a gang that was not."""
    gang = [sys.executable, "-m", "resolute.launch.process_per_slot", "--", sys.executable, PROGRAM]
    whole = FakeMaster().start()
    try:
        whole.gangs["3.task.1"] = {"r0": ("127.0.0.1", 2)}
        ended = tasks.run(variables(whole, tmp_path / "whole", 1, entrypoint=gang, slots=2))
        assert ended.code == 0, ended.err
    finally:
        whole.stop()
    for run in (1, 2):
        master.gangs[f"3.task.{run}"] = {"r0": ("127.0.0.1", 2)}
    task = tasks.start(variables(master, tmp_path, 1, entrypoint=gang, slots=2))
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 5)
    master.preempt("3.task.1")
    assert tasks.finish(task).code == 0
    step, latest = newest(master)
    assert {"rng-rank-0.pt", "rng-rank-1.pt"} <= set(master.stored.checkpoints[latest]["resources"])
    ended = tasks.run(variables(master, tmp_path, 2, latest=latest, entrypoint=gang, slots=2))
    assert ended.code == 0, ended.err
    assert step < LENGTH, "the preemption came too late to test anything"
    assert losses(master, "training") == losses(whole, "training")
    assert len(losses(whole, "training")) == LENGTH


def test_a_missing_metric_is_named(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    task = variables(master, tmp_path, 1)
    config = json.loads(task["DET_EXPERIMENT_CONFIG"])
    config["searcher"]["metric"] = "accurcy"
    ended = tasks.run(task | {"DET_EXPERIMENT_CONFIG": json.dumps(config)})
    assert ended.code == 1 and "'accurcy'" in ended.err and "loss" in ended.err
