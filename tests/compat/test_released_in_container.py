"""The released harness inside a container: its own image, our master, agent and launcher around it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_released import ENVIRONMENT, ReleasedDet
from support.docker import RELEASED, DockerEngine, build_released
from support.live import PASSWORD, LiveCluster, live_cluster, until

pytestmark = [pytest.mark.nightly, pytest.mark.needs("determined"), pytest.mark.needs("docker")]

STEPS = 60


@pytest.fixture
def contained(docker: DockerEngine, tmp_path: Path) -> Iterator[LiveCluster]:
    (site_packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
    build_released(docker, site_packages)
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 1,
        "container_runtime": "docker",
        "docker_host": docker.host,
    }
    defaults = {"network_mode": "host"}
    with live_cluster(tmp_path / "cluster", pool={"provider": provider}, task_container_defaults=defaults) as made:
        yield made
    assert made.left_over() == []


def test_a_trial_of_the_released_harness_in_its_image(contained: LiveCluster, tmp_path: Path) -> None:
    det = ReleasedDet(tmp_path / "home", contained.url, "determined", PASSWORD)
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(Path(__file__).parent / "released_trial.py", model)
    config = {
        "name": "contained",
        "entrypoint": "python3 released_trial.py",
        "hyperparameters": {"steps": STEPS},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        "max_restarts": 0,
        "environment": {"image": RELEASED},
    }
    (model / "config.json").write_text(json.dumps(config))
    printed = det("experiment", "create", str(model / "config.json"), str(model))
    id_ = next(line.split()[2] for line in printed.splitlines() if line.startswith("Created experiment "))
    client = contained.client
    (trial,) = client.experiments.trials(int(id_))
    until("it trains", lambda: client.trials.get(trial.id).total_batches_processed >= 10, within_s=120)
    det("experiment", "pause", id_)
    until("the run has ended", lambda: client.trials.allocations(trial.id)[0].end_time)
    det("experiment", "activate", id_)
    det("experiment", "wait", id_)
    logs = det("experiment", "logs", id_)
    assert "run 2 begins at step" in logs
    lines = [line for line in logs.splitlines() if f"finished at step {STEPS}" in line]
    assert len(lines) == 1, "each line of a container is there once"
    assert client.trials.get(trial.id).total_batches_processed == STEPS
