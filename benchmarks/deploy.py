"""A new cluster on AWS: from `det deploy aws up` to a ready master, and from an experiment to its first step.

moto emulates the account. Terraform, its AWS provider and the boot scripts of the machines are real; packages come from a
directory. The provider waits ten seconds or more for many resources: these waits are the largest part of Terraform's time here, and
do not measure Amazon's speed. The database exists before.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Spread
from support.booted_machines import can_boot
from support.deploy_scenario import CONFIG, made_by
from support.deployed_aws import AwsWorld, aws_world
from support.det import Det
from support.postgres import find_programs
from support.terraform import terraform_runs

SCRIPT = """
import resolute.core

with resolute.core.init() as core:
    core.train.report_training_metrics(1, {"loss": 1.0})
    print("step 1: reported", flush=True)
    core.train.report_validation_metrics(1, {"loss": 1.0})
"""
"""Its log contains the time of the first step."""

NEEDS = (
    (can_boot, "root, `ip` and network namespaces"),
    (lambda: find_programs() is not None, "PostgreSQL"),
    (terraform_runs, "terraform and a mirror of the AWS provider (RESOLUTE_TERRAFORM_MIRROR)"),
)


def main() -> list[Row]:
    missing = [what for there, what in NEEDS if not there()]
    if missing:
        raise SystemExit(f"deploy needs {'; '.join(missing)}, which is not here")
    with tempfile.TemporaryDirectory(prefix="resolute-bench-deploy-") as directory, aws_world(Path(directory)) as world:
        began = time.time()
        made = made_by(world)
        return [*_up(world, made, began), *_first_step(world, made), _down(world)]


def _up(world: AwsWorld, made: Mapping[str, Any], began: float) -> Iterator[Row]:
    total = time.time() - began
    state = world.directory / "home" / ".local" / "share" / "resolute" / "deploy" / "aws" / "vision"
    first, last, resources = terraform_run((state / "module" / "apply.log").read_text().splitlines())
    yield _row("up: to Terraform's first resource", first - began, notes="checks, the wheel, init and plan")
    yield _row("up: Terraform", last - first, notes=f"{resources} resources")
    for stage in made["stages"]:
        yield _row(f"up: the master's machine, {stage['stage']}", stage["seconds"])
    yield _row("up: in all, to a master that serves", total)


def terraform_run(lines: Sequence[str]) -> tuple[float, float, int]:
    """Seconds since the epoch at which an apply began its first and ended its last resource, and the number of resources."""
    events = [json.loads(line) for line in lines if line.startswith("{")]
    began = [_seconds(each["@timestamp"]) for each in events if each.get("type") == "apply_start"]
    ended = [_seconds(each["@timestamp"]) for each in events if each.get("type") == "apply_complete"]
    return min(began), max(ended), len(ended)


def _first_step(world: AwsWorld, made: Mapping[str, Any]) -> Iterator[Row]:
    det = _person(world, made)
    code = world.directory / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "first.yaml").write_text(json.dumps(CONFIG))
    began = time.time()
    ran = det.run("experiment", "create", str(code / "first.yaml"), str(code), "-f", within_s=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    steps = first_steps([json.loads(line) for line in det("trial", "logs", "1", "--json").splitlines()])
    before = began
    for name, at in steps.items():
        yield _row(f"create: {name}", at - before)
        before = at
    yield _row("create: in all, to the first step", before - began)


STAGES = {"to the queue": " waits for ", "to a machine that has joined": " placed on ", "to the first step": "step 1: "}
"""Stages of a trial's start, by the log line at the end of each."""


def first_steps(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds since the epoch at which each stage ended. Raises `ValueError` if the log lacks a line."""
    found: dict[str, float] = {}
    for stage, text in STAGES.items():
        told = [_seconds(line["timestamp"]) for line in lines if text in line["message"]]
        if not told:
            raise ValueError(f"no line of the trial's log says '{text}'")
        found[stage] = told[0]
    return found


def _down(world: AwsWorld) -> Row:
    since = time.monotonic()
    world.deploy("down", "--cluster-id", "vision", "--delete-checkpoints", "--yes")
    return _row("down: in all, to nothing left", time.monotonic() - since, notes="with the machine that trained")


def _person(world: AwsWorld, made: Mapping[str, Any]) -> Det:
    status = json.loads(world.deploy("status", "--cluster-id", "vision", "--json"))
    det = Det(world.directory / "person", master=f"https://{world.master(status['machine']).address}:8443")
    login = {"DET_USER": "determined", "DET_PASS": made["password"]}
    det.environ |= {"DET_MASTER_CERT_FILE": made["certificate"], **login}
    return det


def _row(name: str, seconds: float, *, notes: str = "") -> Row:
    return Row(name=name, subject=Spread.one(seconds, "s"), notes=notes)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
