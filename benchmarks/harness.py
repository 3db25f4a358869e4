"""What the harness costs a training loop: reporting every 100 steps and asking for preemption at every step, beside the plain loop.

A real trial under a real master runs both in one process, in turn: blocks of 100 steps of 5 ms of computation in Python, which
holds the interpreter's lock, so that what the harness's threads do is seen as well. The result is the median over the pairs.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

import yaml

from benchmarks.cluster import Client, cluster
from benchmarks.report import Row, Spread, Target

PAIRS = 60
TARGET_PERCENT = 1.0
CODE = "harness_trial.py"


def main() -> list[Row]:
    with cluster(slots=1) as running:
        client = running.client()
        blocks = _blocks_of(client, _submit(client))
        client.close()
    plain, managed = blocks["plain"], blocks["managed"]
    more = [100 * (own / other - 1) for own, other in zip(managed, plain, strict=True)]
    steps = blocks["steps"][0]
    return [
        Row(
            name="a step with the harness",
            subject=Spread.of([1000 * second / steps for second in managed], "ms"),
            bound_name="the plain loop",
            bound=Spread.of([1000 * second / steps for second in plain], "ms"),
            result=Spread.of(more, "").median,
            unit="% more",
            target=Target(at_most=TARGET_PERCENT),
        )
    ]


def _submit(client: Client) -> int:
    code = Path(__file__).with_name(CODE).read_bytes()
    config = {
        "name": "bench",
        "entrypoint": [sys.executable, CODE, str(PAIRS)],
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


def _blocks_of(client: Client, experiment: int) -> dict[str, list[float]]:
    path = f"/api/v1/experiments/{experiment}"
    while (state := client.get(path)["experiment"]["state"]) not in ("STATE_COMPLETED", "STATE_ERROR"):
        time.sleep(0.5)
    lines = client.lines(int(client.get(f"{path}/trials")["trials"][0]["id"]))
    found = [line for line in lines if line.startswith('{"plain"')]
    if state != "STATE_COMPLETED" or not found:
        raise RuntimeError(f"the trial ended as {state}: {''.join(lines)}")
    blocks: dict[str, list[float]] = json.loads(found[0])
    return blocks
