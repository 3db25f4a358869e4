"""Overhead of the harness in a training loop: a report every 100 steps and a preemption check at every step, compared with a plain
loop.

A real trial under a real master runs steps of either kind in turn. A step computes for 5 ms in Python and holds the interpreter's
lock, so that the step's time includes the work of the harness's threads. The result is the median over blocks of 100 steps. Work of
the threads during a plain step delays that step: the second row contains all processor time of the threads for the managed steps.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

import yaml

from benchmarks.cluster import Client, cluster
from benchmarks.harness_trial import BLOCK
from benchmarks.report import Row, Spread, Target

BLOCKS = 200
TARGET = Target(at_most=1.0)
CODE = "harness_trial.py"

Block = dict[str, float]
"""A `harness_trial.Taken`."""


def main() -> list[Row]:
    with cluster(slots=1) as running:
        client = running.client()
        blocks = _blocks_of(client, _submit(client))
        client.close()
    computed = [each["managed_computed_s"] + each["beside_computed_s"] for each in blocks]
    return [
        _row("a step with the harness", [b["managed_s"] for b in blocks], [b["plain_s"] for b in blocks]),
        _row("processor time of it, in all threads", computed, [b["plain_computed_s"] for b in blocks]),
    ]


def _row(name: str, managed: list[float], plain: list[float]) -> Row:
    more = [100 * (own / other - 1) for own, other in zip(managed, plain, strict=True)]
    return Row(
        name=name,
        subject=Spread.of([1000 * second / BLOCK for second in managed], "ms"),
        bound_name="the plain step",
        bound=Spread.of([1000 * second / BLOCK for second in plain], "ms"),
        result=Spread.of(more, "").median,
        unit="% more",
        target=TARGET,
    )


def _submit(client: Client) -> int:
    code = Path(__file__).with_name(CODE).read_bytes()
    config = {
        "name": "bench",
        "entrypoint": [sys.executable, CODE, str(BLOCKS)],
        "searcher": {"name": "single", "metric": "loss", "max_length": 1},
        "max_restarts": 0,
    }
    file = {"path": CODE, "type": 48, "mode": 0o100644, "mtime": "0", "uid": 0, "gid": 0}
    body = {
        "activate": True,
        "config": yaml.safe_dump(config),
        "modelDefinition": [{**file, "content": base64.b64encode(code).decode()}],
    }
    return int(client.post("/api/v1/experiments", body)["experiment"]["id"])


def _blocks_of(client: Client, experiment: int) -> list[Block]:
    path = f"/api/v1/experiments/{experiment}"
    while (state := client.get(path)["experiment"]["state"]) not in ("STATE_COMPLETED", "STATE_ERROR"):
        time.sleep(0.5)
    lines = client.lines(int(client.get(f"{path}/trials")["trials"][0]["id"]))
    found = [line for line in lines if line.startswith('{"plain_s"')]
    if state != "STATE_COMPLETED" or len(found) != BLOCKS:
        raise RuntimeError(f"the trial ended as {state}: {''.join(lines)}")
    return [json.loads(line) for line in found]
