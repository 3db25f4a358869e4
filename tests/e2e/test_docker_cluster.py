"""Whole clusters whose machines run containers: a real master, the local cloud, agents, a real engine."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.det import Det
from support.docker import TASK, DockerEngine
from support.live import LiveCluster, live_cluster, record_of, until
from support.ports import free_port

pytestmark = pytest.mark.needs("docker")

PASSWORD = "Correct4horse"
TRAINING = {"name": "single", "metric": "loss", "max_length": 1000}


@pytest.fixture
def cluster(docker: DockerEngine, tmp_path: Path) -> Iterator[LiveCluster]:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 2,
        "max_idle_agent_period": "5s",
        "container_runtime": "docker",
        "docker_host": docker.host,
    }
    defaults = {"network_mode": "host", "image": TASK}
    with live_cluster(tmp_path, pool={"provider": provider}, task_container_defaults=defaults) as made:
        yield made
    assert made.left_over() == []
    assert docker.containers() == []


def test_a_trial_trains_in_a_container_and_survives_its_machine(cluster: LiveCluster, docker: DockerEngine) -> None:
    """The machine is switched off in the middle: its container ends with it, and another machine goes on."""
    script = ["report 60 every 0.05s", "checkpoint every 10"]
    experiment = cluster.submit({"script": script}, searcher={**TRAINING, "max_length": 60})
    (trial,) = experiment.list_trials()
    until("it has saved", lambda: len(list(trial.list_checkpoints())) >= 1)
    (before,) = docker.containers()
    assert before["Image"] == TASK
    (machine,) = cluster.machines()
    machine.send_signal(signal.SIGKILL)
    until("its container has ended", lambda: before["Id"] not in [each["Id"] for each in docker.containers()])
    until("it is done", lambda: cluster.client.get_experiment(experiment.id).state == "COMPLETED", within_s=120)
    record = record_of(experiment, steps=60)
    assert sorted(record.reported) == list(range(1, 61))
    assert len(record.resumed) >= 2
    until("no machine idles", lambda: not cluster.machines())
    assert docker.containers() == []


def test_an_image_that_is_nowhere_fails_the_trial_in_words(cluster: LiveCluster) -> None:
    environment = {"environment": {"image": "127.0.0.1:1/mine:1"}}
    experiment = cluster.submit({"script": ["report 1"]}, searcher=TRAINING, **environment)
    until("it has failed", lambda: cluster.client.get_experiment(experiment.id).state == "ERROR")
    (trial,) = experiment.list_trials()
    assert "image '127.0.0.1:1/mine:1' cannot be pulled" in "".join(trial.iter_logs())


@pytest.fixture
def det(docker: DockerEngine, tmp_path: Path) -> Iterator[Det]:
    port = free_port()
    person = Det(tmp_path / "home", f"http://127.0.0.1:{port}")
    person.environ |= {"PORT": str(port), "DOCKER_HOST": docker.host}
    yield person
    person.run("deploy", "local", "cluster-down", "--dir", str(tmp_path / "cluster"))


def test_a_cluster_to_keep_runs_containers(det: Det, docker: DockerEngine, tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path / "cluster"), "--master-port", det.environ["PORT"])
    up = ("deploy", "local", "cluster-up", *where, "--initial-user-password", PASSWORD, "--docker")
    nowhere = det.run(*up, "--image", "127.0.0.1:1/no:1")
    assert (nowhere.returncode, "image '127.0.0.1:1/no:1' cannot be pulled" in nowhere.stderr) == (1, True)
    nobody = det.run(*up, "--image", TASK, variables={"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"})
    assert (nobody.returncode, "no container engine answers" in nobody.stderr) == (1, True)
    assert "--docker only" in det.run("deploy", "local", "cluster-up", *where, "--image", TASK).stderr
    det(*up, "--image", TASK)
    det("user", "login", variables={"DET_USER": "determined", "DET_PASS": PASSWORD})
    config = {
        "name": "contained",
        "entrypoint": "echo made by $MADE_BY in $(cat /proc/1/comm)",
        "searcher": TRAINING,
        "max_restarts": 0,
    }
    (det.home / "contained.yaml").write_text(yaml.safe_dump(config))
    det("experiment", "create", "contained.yaml", "-f")
    det("experiment", "wait", "1", "--polling-interval", "1")
    assert "made by docker-build in docker-init" in det("trial", "logs", "1")
    config["entrypoint"] = "sleep 600"
    (det.home / "long.json").write_text(json.dumps(config))
    det("experiment", "create", "long.json")
    until("it runs", lambda: [each["State"] for each in docker.containers()] == ["running"])
    det("deploy", "local", "cluster-down", "--dir", str(tmp_path / "cluster"))
    assert docker.containers() == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(det.environ["PORT"]))) != 0
