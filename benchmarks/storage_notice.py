"""Time from the notice of an interruption to the committed checkpoint in the bucket, in a real cluster of local machines.

Each run of a trial gets a notice as soon as it trains. The cloud records the time of the notice; the task records the time of the
commit, after the master has stored the checkpoint. Both use the clock of this machine. For comparison, boto3's transfer manager
uploads the same bytes.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import storage_trial
from benchmarks.report import Row, Spread
from benchmarks.storage_server import BUCKET, IDENTITY, Server
from resolute_provisioner.clouds.local.cloud import order_interruption
from resolute_provisioner.clouds.records import read_json
from support.live import LiveCluster, live_cluster, until

SIZES = {"1 MiB": 1024**2, "256 MiB": 256 * 1024**2}
ROUNDS = 3
NOTICE_S = 120.0


def rows(store: Server, directory: Path) -> list[Row]:
    place = directory / "notice"
    place.mkdir()
    shutil.copy(storage_trial.__file__, place / "trial.py")
    pool = {"provider": {"type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "1s"}}
    (directory / "cluster").mkdir()
    with live_cluster(directory / "cluster", pool=pool, checkpoint_storage=store.config("notice")) as cluster:
        return [row for size in SIZES for row in _noticed(cluster, store, place, directory, size)]


def _noticed(cluster: LiveCluster, store: Server, code: Path, directory: Path, size: str) -> list[Row]:
    config = {
        "name": "noticed",
        "entrypoint": "python3 trial.py",
        "searcher": {"name": "single", "metric": "loss"},
        "hyperparameters": {"bytes": SIZES[size]},
        "environment": {"environment_variables": [f"{name}={value}" for name, value in IDENTITY.items()]},
        "max_restarts": 0,
    }
    experiment = cluster.client.create_experiment(config, code)
    trial = until("it has a trial", lambda: next(iter(experiment.list_trials()), None))
    rounds = [_round(cluster, trial, number) for number in range(ROUNDS + 1)][1:]  # The first one is a warm-up.
    bare = [_bare_upload(store, directory, SIZES[size]) for _ in rounds]
    experiment.kill()
    return [
        Row(
            name=f"notice to committed checkpoint, {size}",
            subject=Spread.of([saved for _, saved in rounds], "ms"),
            bound_name="upload of it by boto3's transfer manager",
            bound=Spread.of(bare, "ms"),
            notes="through agent, task, hash, upload and the master's record",
        ),
        Row(
            name=f"of it until the program sees the notice, {size}",
            subject=Spread.of([seen for seen, _ in rounds], "ms"),
        ),
    ]


def _round(cluster: LiveCluster, trial: Any, number: int) -> tuple[float, float]:
    """Milliseconds from the notice until the program reads it, and until the master has stored the committed checkpoint."""
    machine = until("a run works", lambda: _machine(trial, number + 1))
    order_interruption(cluster.pool_root, machine, notice_s=NOTICE_S, reason="benchmark")
    told = until("the notice is there", lambda: _notice_at(cluster, machine), every_s=0.01)
    said = until("it has saved", lambda: _said(trial, number))
    return (said["seen"] - told) * 1000, (said["saved"] - told) * 1000


def _machine(trial: Any, run: int) -> str | None:
    """The machine of the run, after its first reported step."""
    if not any(report.trial_run_id == run for report in trial.iter_metrics("training")):
        return None
    for each in trial.list_allocations():
        if each.run_id == run and each.instance_ids:
            return str(each.instance_ids[0])
    return None


def _notice_at(cluster: LiveCluster, machine: str) -> float | None:
    """Seconds since 1970."""
    for files, record in cluster.machines_on_file():
        if record["instance_id"] == machine:
            notice = read_json(files.notice)
            return None if notice is None else datetime.fromisoformat(notice["deadline"]).timestamp() - NOTICE_S
    return None


def _said(trial: Any, number: int) -> dict[str, float] | None:
    lines = [line for line in "".join(trial.iter_logs()).splitlines() if "noticed {" in line]
    return json.loads(lines[number].partition("noticed ")[2]) if len(lines) > number else None


def _bare_upload(store: Server, directory: Path, size: int) -> float:
    """Milliseconds."""
    path = directory / "weights"
    if not path.exists() or path.stat().st_size != size:
        path.write_bytes(bytes(size))
    client = store.client()
    begun = time.perf_counter()
    client.upload_file(str(path), BUCKET, "bare/weights")
    return (time.perf_counter() - begun) * 1000
