"""Time from the first byte of `POST /experiments` to the first line of the trial's program, compared with a start of that program
alone.

The agent is idle and connected, with the process runtime: a process with a private directory, root and token. The program prints
the time of the clock that all processes of the machine share. It is the experiment's entrypoint, so the time includes the
preparation of the task: its code, its info files, its rendezvous, and the check that its checkpoints can be stored.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cluster import Client, cluster, experiment
from benchmarks.report import Row, Spread, Target, percentile

RUNS = 100
PROGRAM = ["-S", "-E", "-c", "import time; print(time.monotonic_ns(), flush=True)"]
SETTLE_S = 0.1
"""The benchmark does not poll the trial before this time, so that polls do not affect the measurement."""

WARM_UP = 5
RELEASED = Path(__file__).resolve().parents[1] / ".venv-compat" / "bin" / "python"
RELEASED_RUNS = 10
RELEASED_PROGRAM = """
import os, time
from determined import core
if "DET_MASTER" not in os.environ:
    print(time.monotonic_ns(), flush=True)
else:
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL):
        print(time.monotonic_ns(), flush=True)
"""

TARGET_P50_MS, TARGET_P99_MS = 25.0, 80.0


def main() -> list[Row]:
    with cluster(slots=1) as running:
        client = running.client()
        bare, started = _pairs(client, [sys.executable, *PROGRAM], RUNS)
        rows = [_row(percent, limit, bare, started) for percent, limit in ((50, TARGET_P50_MS), (99, TARGET_P99_MS))]
        if RELEASED.exists():
            rows.append(_released_row(client))
        client.close()
    return rows


def _pairs(client: Client, program: list[str], runs: int, **config: Any) -> tuple[list[float], list[float]]:
    """Milliseconds of the program alone and as a trial, in turn. The first rounds are a warm-up."""
    warm_up = min(WARM_UP, runs // 2)
    pairs = [(_bare_ms(program), _started_ms(client, program, **config)) for _ in range(runs + warm_up)]
    bare, started = zip(*pairs[warm_up:], strict=True)
    return list(bare), list(started)


def _row(percent: int, limit: float, bare: list[float], started: list[float]) -> Row:
    return Row(
        name=f"start, p{percent} of {RUNS}",
        subject=Spread.one(percentile(started, percent), "ms"),
        bound_name="the bare program",
        bound=Spread.one(percentile(bare, percent), "ms"),
        result=percentile([ours - own for ours, own in zip(started, bare, strict=True)], percent),
        unit="ms more",
        target=Target(at_most=limit),
    )


def _released_row(client: Client) -> Row:
    program = [str(RELEASED), "-c", RELEASED_PROGRAM]
    seen = {"environment_variables": [f"PATH={RELEASED.parent}:/usr/local/bin:/usr/bin:/bin"]}
    bare, started = _pairs(client, program, RELEASED_RUNS, environment=seen)
    return Row(
        name=f"whole start of the released harness, {RELEASED_RUNS} runs",
        subject=Spread.of(started, "ms"),
        bound_name="one import of it",
        bound=Spread.of(bare, "ms"),
        result=Spread.of([ours - own for ours, own in zip(started, bare, strict=True)], "").median,
        unit="ms more",
    )


def _bare_ms(program: list[str]) -> float:
    start = time.monotonic_ns()
    said = subprocess.run(program, capture_output=True, check=True).stdout
    return (int(said) - start) / 1e6


def _started_ms(client: Client, program: list[str], **config: Any) -> float:
    body = experiment(program, **config)
    start = time.monotonic_ns()
    created = client.send("POST", "/api/v1/experiments", body)
    trial = json.loads(created)["experiment"]["id"]
    time.sleep(SETTLE_S)
    until_over(client, trial)
    return (_time_said(client, trial) - start) / 1e6


def until_over(client: Client, experiment_id: int) -> None:
    while (state := client.get(f"/api/v1/experiments/{experiment_id}")["experiment"]["state"]) != "STATE_COMPLETED":
        if state in ("STATE_ERROR", "STATE_CANCELED"):
            raise RuntimeError(f"experiment {experiment_id}: {state}\n{''.join(client.lines(experiment_id))}")
        time.sleep(0.02)


def _time_said(client: Client, trial: int) -> int:
    return next(int(line) for line in client.lines(trial) if line.strip().isdigit())
