"""Time from the last instruction of a trial's program until its slot is free, compared with the exit of that program alone.

The agent is idle and connected, with the process runtime. The program writes the time and exits. The slot is free at the end of the
allocation that the master reports. In between, the agent ships the last line of the log, on which a retry may depend.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime

from benchmarks.cluster import Client, cluster, experiment
from benchmarks.report import Row, Spread, Target, percentile
from benchmarks.start import SETTLE_S, until_over

RUNS = 50
WARM_UP = 3
PROGRAM = [sys.executable, "-S", "-E", "-c", "import os, time; os.write(1, b'%d\\n' % time.time_ns()); os._exit(0)"]
TARGET_MS = 30.0
"""Target of the median on an idle machine."""


def main() -> list[Row]:
    with cluster(slots=1) as running:
        client = running.client()
        found = [(_bare_ms(), _freed_ms(client)) for _ in range(RUNS + WARM_UP)][WARM_UP:]
        client.close()
    bare, freed = ([pair[side] for pair in found] for side in (0, 1))
    return [
        Row(
            name=f"the exit frees its slot, p{percent} of {RUNS}",
            subject=Spread.one(percentile(freed, percent), "ms"),
            bound_name="the end of the bare program",
            bound=Spread.one(percentile(bare, percent), "ms"),
            result=percentile(freed, percent),
            unit="ms",
            target=Target(at_most=TARGET_MS) if percent == 50 else None,
        )
        for percent in (50, 90)
    ]


def _bare_ms() -> float:
    said = subprocess.run(PROGRAM, capture_output=True, check=True).stdout
    return (time.time_ns() - int(said)) / 1e6


def _freed_ms(client: Client) -> float:
    answer = client.send("POST", "/api/v1/experiments", experiment(PROGRAM))
    trial = int(json.loads(answer)["experiment"]["id"])  # The experiment has one trial, so that both ids are equal.
    time.sleep(SETTLE_S)
    until_over(client, trial)
    said = next(int(line) for line in client.lines(trial) if line.strip().isdigit())
    (attempt,) = client.get(f"/api/v1/trials/{trial}/allocations")["allocations"]
    return datetime.fromisoformat(attempt["endTime"]).timestamp() * 1e3 - said / 1e6
