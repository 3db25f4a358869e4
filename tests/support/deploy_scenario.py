"""The lifecycle of a deployed cluster: `up`, an experiment, `up` again, `down`. A test and the demonstration run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.deployed import DeployWorld
from support.det import Det
from support.live import until

SCRIPT = """
import resolute.core

with resolute.core.init() as core:
    for step in range(1, 4):
        core.train.report_validation_metrics(step, {"loss": 1 / step})
    with core.checkpoint.store_path({"steps_completed": 3}) as (path, _):
        (path / "weights").write_text("saved")
"""
CONFIG = {
    "name": "first",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
    "resources": {"slots_per_trial": 1},
    "max_restarts": 0,
}


@dataclass
class Scenario:
    """The output for a user, in order."""

    world: DeployWorld
    made: dict[str, Any]
    certificate: str
    status: dict[str, Any]
    again: str
    experiment: dict[str, Any]
    objects: list[str]
    down: str
    left: list[str]


def silent(text: str) -> None:
    """Says nothing."""


def deploy_scenario(world: DeployWorld, say: Callable[[str], object] = silent) -> Scenario:
    """Raises `AssertionError` if a command fails."""
    say(f"det deploy {world.cloud} up: Terraform makes the cluster, and its master's machine boots")
    made = made_by(world)
    took = ", ".join(f"{each['stage']} {each['seconds']:.0f} s" for each in made["stages"])
    say(f"  it serves; on the machine: {took}")
    status = json.loads(world.deploy("status", "--cluster-id", "vision", "--json"))
    master = world.master(status["machine"])
    det = Det(world.directory / "person", master=f"https://{master.address}:8443")
    certificate = Path(made["certificate"]).read_text()
    variables = {"DET_MASTER_CERT_FILE": made["certificate"], "DET_USER": "determined", "DET_PASS": made["password"]}
    det.environ |= variables
    code = world.directory / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "first.yaml").write_text(json.dumps(CONFIG))
    say("det experiment create: the master buys a machine, trains on it and saves to the bucket")
    det.run("experiment", "create", str(code / "first.yaml"), str(code), "-f", within_s=300)
    (experiment,) = json.loads(det("experiment", "describe", "1", "--json"))
    objects = world.checkpoints(status["bucket"])
    say(f"det deploy {world.cloud} up, once more: nothing is to be changed")
    again = world.deploy("up", "--cluster-id", "vision", "--dry-run")
    say("waiting for the pool to shrink to nothing")
    until("the pool has shrunk to nothing", lambda: len(world.bridge.living()) == 1, within_s=120)
    say(f"det deploy {world.cloud} down")
    down = world.deploy("down", "--cluster-id", "vision", "--delete-checkpoints", "--yes")
    return Scenario(
        world=world,
        made=made,
        certificate=certificate,
        status=status,
        again=again,
        experiment=experiment,
        objects=objects,
        down=down,
        left=world.remaining(),
    )


def made_by(world: DeployWorld) -> dict[str, Any]:
    text = world.deploy("up", *world.flags, "--json")
    made: dict[str, Any] = json.loads(text[text.index("{\n") : text.rindex("}") + 1])
    return made
