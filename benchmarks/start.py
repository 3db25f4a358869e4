"""From the first byte of `POST /experiments` to the first line of the trial's own program, beside that program started bare.

Agent idle and connected, process runtime: own process, private directory and root, own token. The program prints the time of
the clock that all processes of the machine share; it is the experiment's entrypoint, so everything that a task is owed (its
code, its info files, its rendezvous, the proof that its checkpoints can be stored) has happened before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.cluster import Client, cluster, experiment
from benchmarks.report import Row, Spread, Target, percentile

RUNS = 100
PROGRAM = ["-S", "-E", "-c", "import time; print(time.monotonic_ns(), flush=True)"]
SETTLE_S = 0.1
"""Nobody asks how far a trial is before this much time: the questions would be measured as well."""

TARGET_P50_MS, TARGET_P99_MS = 25.0, 80.0


def main() -> list[Row]:
    bare: list[float] = []
    started: list[float] = []
    with cluster(slots=1) as running:
        client = running.client()
        for number in range(RUNS + 5):
            own, ours = _bare_ms(), _started_ms(client)
            if number >= 5:
                bare.append(own)
                started.append(ours)
        client.close()
    more = [ours - own for ours, own in zip(started, bare, strict=True)]
    rows = []
    for percent, limit in ((50, TARGET_P50_MS), (99, TARGET_P99_MS)):
        rows.append(
            Row(
                name=f"start, p{percent} of {RUNS}",
                subject=Spread.one(percentile(started, percent), "ms"),
                bound_name="the bare program",
                bound=Spread.one(percentile(bare, percent), "ms"),
                result=percentile(more, percent),
                unit="ms more",
                target=Target(at_most=limit),
            )
        )
    return rows


def _bare_ms() -> float:
    start = time.monotonic_ns()
    said = subprocess.run([sys.executable, *PROGRAM], capture_output=True, check=True).stdout
    return (int(said) - start) / 1e6


def _started_ms(client: Client) -> float:
    body = experiment([sys.executable, *PROGRAM])
    start = time.monotonic_ns()
    created = client.send("POST", "/api/v1/experiments", body)
    trial = json.loads(created)["experiment"]["id"]
    time.sleep(SETTLE_S)
    _until_over(client, trial)
    return (_time_said(client, trial) - start) / 1e6


def _until_over(client: Client, experiment_id: int) -> None:
    while (state := client.get(f"/api/v1/experiments/{experiment_id}")["experiment"]["state"]) != "STATE_COMPLETED":
        if state in ("STATE_ERROR", "STATE_CANCELED"):
            raise RuntimeError(f"experiment {experiment_id}: {state}\n{''.join(client.lines(experiment_id))}")
        time.sleep(0.02)


def _time_said(client: Client, trial: int) -> int:
    return next(int(line) for line in client.lines(trial) if line.strip().isdigit())
