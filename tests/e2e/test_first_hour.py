"""The first hour with a model of one's own: what goes wrong is explained where one looks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolute.errors import NotFound
from support.det import Det
from support.live import PASSWORD, LiveCluster, live_cluster
from support.new_db import NewDb

GUIDE = Path(__file__).parents[2] / "docs" / "your-own-model.md"

CRASH = """
def fit(shape):
    raise ValueError(f"shapes {shape} and (5,) do not fit")
print("reading data", flush=True)
fit((3, 4))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, new_db: NewDb) -> Iterator[LiveCluster]:
    provider = {"type": "local", "slots_per_instance": 1, "min_instances": 2, "max_instances": 2}
    with live_cluster(tmp_path_factory.mktemp("hour"), pool={"provider": provider}, **new_db()) as running:
        yield running
    assert running.left_over() == []


@pytest.fixture
def det(cluster: LiveCluster, tmp_path: Path) -> Det:
    person = Det(tmp_path / "home", cluster.url)
    person("user", "login", variables={"DET_USER": "determined", "DET_PASS": PASSWORD})
    return person


def a_model(det: Det, program: str, **changes: Any) -> tuple[str, str]:
    """The arguments of `create`: a configuration, and a directory with the program."""
    code = det.home / "model"
    code.mkdir()
    (code / "train.py").write_text(program)
    config = {
        "name": "mine",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "val_loss"},
        **changes,
    }
    (det.home / "config.yaml").write_text(yaml.safe_dump(config))
    return "config.yaml", "model"


def test_a_failure_is_explained_where_one_looks(det: Det) -> None:
    ran = det.run("experiment", "create", *a_model(det, CRASH, max_restarts=2), "-f")
    assert ran.returncode == 1
    number = int(ran.stdout.split("Created experiment ")[1].split()[0])
    log = det("experiment", "logs", str(number))
    # The log: tracebacks are errors, identical failures in a row are told, and the last line explains the end.
    assert "ERROR: Traceback (most recent call last):" in log and "ERROR: ValueError: shapes" in log
    assert "INFO: reading data" in log
    assert "failed 2 times in a row with the same error: a restart meets the same error again" in log
    last = log[log.rindex(f"ERROR: Experiment {number} ended as ERROR") :]
    described, job = det("experiment", "describe", str(number)), det("job", "explain", str(number))
    for told in (last, described, job, ran.stdout):
        assert "ERROR" in told and "exited with code 1" in told
        assert "3 times in a row with the same error" in told
        assert "in fit" in told and "ValueError: shapes (3, 4) and (5,) do not fit" in told, told
    assert f"Experiment {number} ended as ERROR" in ran.stderr and "ValueError: shapes" in ran.stderr
    waited = det("experiment", "wait", str(number), code=1)
    assert "ValueError: shapes (3, 4) and (5,) do not fit" in waited


def test_a_missing_module_hints_at_what_to_do(det: Det) -> None:
    ran = det.run("experiment", "create", *a_model(det, "import nothing_like_it", max_restarts=0), "-f")
    assert ran.returncode == 1
    assert "Hint: 'nothing_like_it' is not there where tasks run" in ran.stdout


def test_an_end_that_is_well_is_told_too(det: Det) -> None:
    ran = det.run("experiment", "create", *a_model(det, "print('done')"), "-f")
    assert ran.returncode == 0 and "ended as COMPLETED" in ran.stdout


TRAINS = """
from resolute import core

with core.init() as context:
    rate = float(context.info.trial.hparams["lr"])
    for step in range(1, 21):
        context.train.report_training_metrics(step, {"loss": rate / step})
        if step % 10 == 0:
            context.train.report_validation_metrics(step, {"val_acc": 1 - rate / step, "val_loss": rate / step})
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "weights").write_text("w")
"""


def test_results_can_be_read(det: Det, cluster: LiveCluster) -> None:
    """The best trial, the ranking by the searcher's metric, and the best checkpoint."""
    config, model = a_model(
        det,
        TRAINS,
        searcher={"name": "random", "metric": "val_loss", "max_trials": 3, "max_length": 20},
        hyperparameters={"lr": {"type": "double", "minval": 0.1, "maxval": 0.9}},
    )
    number = det.json("experiment", "create", str(det.home / config), str(det.home / model))["id"]
    det("experiment", "wait", str(number), "--polling-interval", "1")
    trials = det.json("trial", "list", str(number))
    values = [trial["searcherMetricValue"] for trial in trials]
    assert values == sorted(values) and len(values) == 3
    table = det("trial", "list", str(number))
    assert "Best val_loss" in table.splitlines()[0] and str(trials[0]["id"]) in table.splitlines()[2]
    experiment = cluster.client.get_experiment(number)
    assert experiment.details.best_trial_id == trials[0]["id"] == experiment.best_trial().id
    assert experiment.details.best_trial_searcher_metric == values[0]
    best = experiment.best_checkpoint()
    assert best.metadata["steps_completed"] == 20 and best.details.training.trial_id == trials[0]["id"]
    assert experiment.best_trial().best_checkpoint().uuid == best.uuid


def test_a_metric_that_is_never_reported_is_a_warning(det: Det, cluster: LiveCluster) -> None:
    config, model = a_model(
        det,
        TRAINS,
        searcher={"name": "single", "metric": "accuracy", "max_length": 20},
        hyperparameters={"lr": 0.1},
    )
    ran = det.run("experiment", "create", config, model, "-f")
    number = int(ran.stdout.split("Created experiment ")[1].split()[0])
    told = "searcher.metric is 'accuracy', but the validation of trial"
    assert ran.stdout.count(told) == 1 and "WARNING" in ran.stdout and "reported 'val_acc', 'val_loss'" in ran.stdout
    assert told in det("experiment", "describe", str(number))
    with pytest.raises(NotFound, match="'val_acc', 'val_loss'"):
        cluster.client.get_experiment(number).best_trial()


def block(language: str, number: int) -> str:
    """The `number`-th block of the guide in that language."""
    found = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found[number])


def test_the_guide_to_a_model_of_ones_own_does_what_it_says(det: Det, cluster: LiveCluster) -> None:
    code = det.home / "my_model"
    code.mkdir()
    (code / "train.py").write_text(block("python", 0))
    (code / "config.yaml").write_text(block("yaml", 0))
    ran = det.run("experiment", "create", "my_model/config.yaml", "my_model", "-f")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "weight 2.9999" in ran.stdout and "Warning" not in ran.stdout + ran.stderr
    number = int(ran.stdout.split("Created experiment ")[1].split()[0])
    assert "Best val_error" in det("trial", "list", str(number))
    det("experiment", "download", str(number))
    (found,) = (det.home / "checkpoints").iterdir()
    assert (found / "state.txt").read_text().endswith(" 100")
    environ = {**det.environ, "DET_MASTER": cluster.url}
    done = subprocess.run(
        [sys.executable, "-c", block("python", 1)], cwd=code, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert " 100 best" in done.stdout and (code / "best" / "state.txt").exists()
    script = block("sh", 4).replace('"..."', f'"{PASSWORD}"').replace("/1", f"/{number}")
    asked = subprocess.run(["sh", "-euc", script], env=environ, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    assert '"state":"STATE_COMPLETED"' in asked.stdout and '"searcherMetric"' in asked.stdout
