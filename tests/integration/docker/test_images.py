"""The images of master and agent, built from a base of this machine: alone, and with Compose and PostgreSQL, they train."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import resolute
from resolute_provisioner.clouds.records import read_json
from support.deployed_aws import wheelhouse
from support.det import Det
from support.docker import POSTGRES, TASK, WITH_PIP, DockerEngine, build_postgres, build_with_pip
from support.live import until
from support.ports import free_port
from support.postgres import find_programs

pytestmark = [pytest.mark.needs("docker"), pytest.mark.needs("compose"), pytest.mark.needs("postgres")]

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "images" / "compose"
PREFIX = "resolute-test"
PASSWORD = "Correct4horse"
TRAINING = {
    "entrypoint": "python3 -m resolute.testing.scripted_trial",
    "searcher": {"name": "single", "metric": "loss", "max_length": 40},
    "hyperparameters": {"script": ["report 10 every 0.02s", "checkpoint every 5"]},
    "max_restarts": 0,
}


@pytest.fixture(scope="module")
def bills(docker: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the bills of the images are, which `make images` has built."""
    build_with_pip(docker)
    packages = wheelhouse(tmp_path_factory.mktemp("wheelhouse"))
    place = tmp_path_factory.mktemp("bills")
    flags = ("--base", WITH_PIP, "--wheelhouse", str(packages), "--prefix", PREFIX, "--directory", str(place))
    command = [sys.executable, "-m", "scripts.images", *flags, "--only", "master", "--only", "agent"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "DOCKER_HOST": docker.host}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return place


@dataclass
class Composition:
    """The services of compose.yaml on the test's engine."""

    engine: DockerEngine
    variables: Mapping[str, str]
    port: int

    def __call__(self, *words: str) -> str:
        files = ("--project-directory", str(COMPOSE), "-f", str(COMPOSE / "compose.yaml"))
        command = ["docker-compose", "-p", self.variables["NETWORK"], *files, *words]
        environ = {**os.environ, **self.variables, "DOCKER_HOST": self.engine.host}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def composed(docker: DockerEngine, bills: Path, tmp_path: Path) -> Iterator[Composition]:
    programs = find_programs()
    assert programs is not None
    build_postgres(docker, programs)
    port = free_port()
    composition = Composition(
        engine=docker,
        port=port,
        variables={
            "PREFIX": PREFIX,
            "POSTGRES_IMAGE": POSTGRES,
            "POSTGRES_PASSWORD": secrets.token_hex(8),
            "INITIAL_USER_PASSWORD": PASSWORD,
            "JOIN_TOKEN": secrets.token_hex(24),
            "MASTER_PORT": str(port),
            "CHECKPOINTS": str(tmp_path / "checkpoints"),
            "AGENT_STATE": str(tmp_path / "agent"),
            "DOCKER_SOCKET": docker.host.removeprefix("unix://"),
            "NETWORK": "resolute-test-images",
        },
    )
    try:
        yield composition
    finally:
        composition("down", "--volumes", "--remove-orphans", "--timeout", "20")
    assert docker.containers() == []


@pytest.mark.nightly
def test_a_composed_cluster_trains_in_containers_and_so_does_a_container_of_an_agent(
    composed: Composition, docker: DockerEngine, tmp_path: Path
) -> None:
    """Two agents of one image: with the engine as root, and as the image's own user without anything."""
    composed("up", "-d")
    det = Det(tmp_path / "home", f"http://127.0.0.1:{composed.port}")
    det("user", "login", variables={"DET_USER": "admin", "DET_PASS": PASSWORD})
    until("the agent has joined", lambda: [each["id"] for each in det.json("agent", "list")] == ["agent-1"])
    train(det, "composed", {"environment": {"image": TASK}})
    (saved,) = {path.stat().st_uid for path in (tmp_path / "checkpoints").glob("*/state.json")}
    assert saved == 10001, "a checkpoint belongs to the user of master and tasks"
    composed("stop", "--timeout", "30", "agent")

    alone = ("--network", "resolute-test-images", "--volume", f"{tmp_path / 'checkpoints'}:{tmp_path / 'checkpoints'}")
    variables = {
        "DET_MASTER_HOST": "master",
        "DET_MASTER_PORT": "8080",
        "DET_AGENT_ID": "alone",
        "DET_JOIN_TOKEN": composed.variables["JOIN_TOKEN"],
    }
    given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    run = ["docker", "run", "--detach", "--name", "alone", *alone, *given, f"{PREFIX}-agent:latest"]
    subprocess.run(run, env={**os.environ, "DOCKER_HOST": docker.host}, check=True, capture_output=True)
    try:
        train(det, "alone", {})
        with docker.client() as client:
            assert client.inspect_container("alone")["Config"]["User"] == "10001:10001"
    finally:
        with docker.client() as client:
            client.remove_container("alone", force=True, v=True)


def train(det: Det, name: str, more: Mapping[str, Any]) -> None:
    (det.home / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **TRAINING, **more}))
    number = det.text("experiment", "create", str(det.home / f"{name}.yaml")).split()[-1]
    done = det.run("experiment", "wait", number, "--polling-interval", "1")
    assert done.returncode == 0, done.stderr + det.text("trial", "logs", number)


@pytest.mark.nightly
def test_the_bills_name_the_images_and_what_is_in_them(bills: Path, docker: DockerEngine) -> None:
    for name, package in (("master", "sqlalchemy"), ("agent", "docker")):
        tag = f"{PREFIX}-{name}:{resolute.__version__}"
        bill = read_json(bills / f"{PREFIX}-{name}_{resolute.__version__}.cdx.json")
        assert bill is not None
        with docker.client() as client:
            assert bill["metadata"]["component"]["version"] == client.inspect_image(tag)["Id"]
        listed = {each["name"].lower(): each["version"] for each in bill["components"]}
        assert listed["resolute-ml"] == resolute.__version__ and package in listed
        assert "boto3" in listed if name == "master" else "boto3" not in listed


def test_a_missing_secret_is_named_and_gpus_are_an_overlay(tmp_path: Path) -> None:
    place = tmp_path / "compose"
    shutil.copytree(COMPOSE, place)
    shutil.copy(place / "example.env", place / ".env")
    command = ["docker-compose", "-f", "compose.yaml", "-f", "gpu.yaml", "config"]
    refused = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "write it into .env" in refused.stderr
    filled = (place / "example.env").read_text().replace("=\n", "=hidden-value\n")
    (place / ".env").write_text(filled)
    read = yaml.safe_load(subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout)
    (device,) = read["services"]["agent"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert read["services"]["master"]["ports"] == ["127.0.0.1:8080:8080/tcp"]
    assert json.dumps(read).count("hidden-value") == 5
