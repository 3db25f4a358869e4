"""A trial of the released harness runs here: it reports, saves, is preempted, and goes on where it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from resolute.wire.rest.checkpoints import GetCheckpointsQuery
from support.api_released import COMPAT, ENVIRONMENT, RECORDER, ReleasedDet, created
from support.live import LiveCluster, until

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces"), pytest.mark.needs("postgres")]

STEPS = 120

STEP_S = 0.05
"""Each step of `released_trial.py` sleeps so long."""


def recorded(evidence: Path) -> str:
    """The beginning of a command line under which the released client notes what it could read."""
    return f"RECORD_ACCEPTED={evidence} PYTHONPATH={evidence.parent / RECORDER.name}:$PYTHONPATH python3"


@pytest.fixture
def context(tmp_path: Path, evidence: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    shutil.copy(Path(__file__).parent / "released_trial.py", directory)
    config = {
        "name": "released-harness",
        "entrypoint": f"{recorded(evidence)} released_trial.py",
        "hyperparameters": {"steps": STEPS},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        "max_restarts": 0,
        "checkpoint_storage": {"save_trial_latest": 10},  # all of them
        "environment": {"python": str(ENVIRONMENT)},
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_a_trial_is_preempted_and_goes_on(det: ReleasedDet, cluster: LiveCluster, context: Path) -> None:
    printed = det("experiment", "create", str(context / "config.json"), str(context))
    id_ = next(line.split()[2] for line in printed.splitlines() if line.startswith("Created experiment "))
    client = cluster.client
    (trial,) = client.experiments.trials(int(id_))

    until("it trains", lambda: client.trials.get(trial.id).total_batches_processed >= 10)
    det("experiment", "pause", id_)
    until("the run has ended", lambda: client.trials.allocations(trial.id)[0].end_time)
    (first,) = client.trials.allocations(trial.id)
    assert (first.preempted, first.exit_code) == (True, 0)
    (saved,) = client.trials.checkpoints(trial.id, GetCheckpointsQuery())
    resumed = saved.metadata["steps_completed"]
    assert 10 <= resumed < STEPS
    assert set(saved.resources) == {"state.json", "metadata.json"}

    det("experiment", "activate", id_)
    det("experiment", "wait", id_)
    logs = det("experiment", "logs", id_)
    assert f"preempted at step {resumed}" in logs
    assert f"run 2 begins at step {resumed}" in logs
    assert f"finished at step {STEPS}" in logs
    shown = client.trials.get(trial.id)
    assert (shown.restarts, shown.total_batches_processed) == (0, STEPS)
    assert shown.latest_validation is not None
    assert shown.latest_validation.metrics.avg_metrics == {"loss": 1.0 / STEPS}
    # The released harness sends no step marks: what its reports tell of is useful all the same.
    ended_runs = client.trials.allocations(trial.id)
    assert [(run.steps_at_end, run.steps_kept) for run in ended_runs] == [(resumed, resumed), (STEPS, STEPS)]
    spent = client.experiments.cost(int(id_)).totals
    assert spent.useful_s > STEPS * STEP_S / 2 and spent.starting_s > 0
    assert (spent.lost_s, spent.idle_s) == (0, 0)
    reports = list(client.trials.metrics([trial.id], "training"))
    assert [r.total_batches for r in reports if not r.archived] == list(range(1, STEPS + 1))
    downloaded = context.parent / "checkpoint"
    last = max(client.trials.checkpoints(trial.id, GetCheckpointsQuery()), key=lambda c: c.metadata["steps_completed"])
    assert last.uuid in det("checkpoint", "describe", last.uuid)
    det("checkpoint", "download", last.uuid, "--output-dir", str(downloaded), "--mode", "master")
    assert json.loads((downloaded / "state.json").read_text()) == {"done": STEPS}
    removed_by_hand_and_by_policy(det, cluster, id_, first=saved.uuid, last=last.uuid)


def removed_by_hand_and_by_policy(det: ReleasedDet, cluster: LiveCluster, id_: str, *, first: str, last: str) -> None:
    """Both checkpoints of an ended experiment, with the released command line."""
    checkpoints = cluster.client.checkpoints
    listed = det("experiment", "list-checkpoints", id_)
    assert first in listed and last in listed
    det("checkpoint", "rm", last, "--glob", "state.*", "--yes")
    until("the file is gone", lambda: checkpoints.get(last).state.name == "PARTIALLY_DELETED")
    counts = ("--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "1")
    assert "will delete" in det("experiment", "set", "gc-policy", id_, *counts, typed="yes\n")
    until("the older one is gone", lambda: checkpoints.get(first).state.name == "DELETED")
    assert [path.name for path in cluster.storage.iterdir() if path.name in (first, last)] == [last]
    det("checkpoint", "delete", "--yes", last)
    until("the other one is gone", lambda: not (cluster.storage / last).exists())


def test_two_tasks_of_the_released_harness_run_at_once(det: ReleasedDet, cluster: LiveCluster, context: Path) -> None:
    """Each sees its own files of its own task, although both read them from the same path."""
    ids = []
    for _ in range(2):
        printed = det("experiment", "create", str(context / "config.json"), str(context))
        ids.append(next(line.split()[2] for line in printed.splitlines() if line.startswith("Created experiment ")))
    client = cluster.client
    trials = [client.experiments.trials(int(id_))[0] for id_ in ids]
    until("both train", lambda: all(client.trials.get(t.id).total_batches_processed >= 5 for t in trials))
    states = [client.get_experiment(int(id_)).state for id_ in ids]
    assert states == ["RUNNING", "RUNNING"]
    for id_ in ids:
        det("experiment", "wait", id_)
        assert f"finished at step {STEPS}" in det("experiment", "logs", id_)


def ended(cluster: LiveCluster, id_: int) -> str:
    """The state in which it ended; `det experiment wait` looks every five seconds only."""

    def state() -> str | None:
        shown = cluster.client.get_experiment(id_).state
        return shown if shown in ("COMPLETED", "ERROR", "CANCELED") else None

    return until(f"experiment {id_} ends", state, within_s=180)


def submit(det: ReleasedDet, context: Path, script: str, evidence: Path, **changes: Any) -> int:
    """Runs the script as a trial, to its end."""
    shutil.copy(COMPAT / script, context)
    config = {**json.loads((context / "config.json").read_text()), **changes}
    config["entrypoint"] = f"{recorded(evidence)} {script}"
    (context / "config.json").write_text(json.dumps(config))
    return int(created(det("experiment", "create", str(context / "config.json"), str(context))))


def test_the_harness_makes_every_call_it_has(
    det: ReleasedDet, cluster: LiveCluster, context: Path, evidence: Path
) -> None:
    client = cluster.client
    first = submit(det, context, "released_trial.py", evidence, hyperparameters={"steps": 2})
    assert ended(cluster, first) == "COMPLETED"
    (trial,) = client.experiments.trials(first)
    (used,) = client.trials.checkpoints(trial.id, GetCheckpointsQuery())
    id_ = submit(det, context, "released_calls.py", evidence, hyperparameters={"uses": used.uuid})
    state = ended(cluster, id_)
    logs = det("experiment", "logs", str(id_))
    assert state == "COMPLETED" and "every call was answered" in logs, logs
    assert "posted by the bindings" in logs
    (trial,) = client.experiments.trials(id_)
    shown = client.trials.get(trial.id)
    assert (shown.total_batches_processed, shown.metadata, shown.runner_state) == (3, {"colour": "blue"}, "reporting")
    saved = client.trials.checkpoints(trial.id, GetCheckpointsQuery())
    kept = [set(c.resources) for c in saved if c.resources]  # one was removed, and is listed without files
    assert kept == [{"state.json", "big.bin", "metadata.json"}]
    linked = det("trial", "describe", str(trial.id), "--json")
    assert json.loads(linked)["trial"]["id"] == trial.id
    events = cluster.storage / client.cluster.info().cluster_id / "tensorboard" / "experiment" / str(id_)
    assert list(events.rglob("*tfevents*"))
    det("experiment", "delete-tb-files", str(id_))
    until("the TensorBoard files are gone", lambda: not events.exists())


def test_a_gang_of_the_harness_saves_together(
    det: ReleasedDet, cluster: LiveCluster, context: Path, evidence: Path
) -> None:
    id_ = submit(det, context, "released_gang.py", evidence, resources={"slots_per_trial": 2})
    state = ended(cluster, id_)
    logs = det("experiment", "logs", str(id_))
    assert state == "COMPLETED", logs
    assert "rank 0 of 2 saved" in logs and "rank 1 of 2 saved" in logs
    (trial,) = cluster.client.experiments.trials(id_)
    (saved,) = cluster.client.trials.checkpoints(trial.id, GetCheckpointsQuery())
    assert set(saved.resources) - {"metadata.json"} == {"rank0", "rank1"}


def test_a_trial_that_finds_its_point_invalid_says_so(
    det: ReleasedDet, cluster: LiveCluster, context: Path, evidence: Path
) -> None:
    id_ = submit(det, context, "released_invalid.py", evidence)
    assert ended(cluster, id_) == "COMPLETED"
    logs = det("experiment", "logs", str(id_))
    assert "told" in logs and "reports invalid hyperparameters" in logs
