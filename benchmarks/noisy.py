"""The effect of a task that writes 10,000 lines per second on others: on a quiet task's lines, and on calls of the API.

    python -m benchmarks.noisy [--seconds 10] [--rounds 3]

A real master on SQLite, one real agent with two slots. The quiet task prints the time every 20 ms; a client follows its log and
records the delay of each line. Another client lists experiments sequentially. Both are measured in turn without and with the noisy
task.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing

from benchmarks.cluster import Client, Cluster, cluster, experiment
from benchmarks.report import Row, Spread, Target

NOISE = """\
import sys, time
number, begun = 0, time.time()
while True:
    sys.stdout.write("".join(f"noise {number + i} of a line that is about as long as what people print\\n" for i in range(500)))
    sys.stdout.flush()
    number += 500
    time.sleep(max(0.0, begun + number / 10_000 - time.time()))
"""

QUIET = """\
import time
end = time.time() + %d
while time.time() < end:
    print(f"at {time.time():.6f}", flush=True)
    time.sleep(0.02)
"""

LINES_PER_S = 10_000
LATE = Target(at_most=3.0)
"""The delay of a line and the latency of calls may grow by this factor at most."""


def started(client: Client, program: str) -> int:
    """The id of a trial whose process runs the program."""
    answer = client.post("/api/v1/experiments", json.loads(experiment(["python3", "-u", "-c", program])))
    return int(answer["experiment"]["id"])


def trial_of(client: Client, experiment_id: int) -> int:
    while not (trials := client.get(f"/api/v1/experiments/{experiment_id}/trials")["trials"]):
        time.sleep(0.01)
    return int(trials[0]["id"])


def delays_of_lines(running: Cluster, seconds: int) -> list[float]:
    """Seconds from the `print` of each line of a quiet task to its arrival at a client that follows the log."""
    with closing(running.client()) as client:
        trial = trial_of(client, started(client, QUIET % seconds))
        connection = client._connection
        connection.request("GET", f"/api/v1/trials/{trial}/logs?follow=true", headers=client._headers)
        answer = connection.getresponse()
        delays = []
        while line := answer.readline():
            text = json.loads(line)["result"]["message"]
            if (at := text.rpartition(" at ")[2]) != text and "||" in text:
                try:
                    delays.append(time.time() - float(at))
                except ValueError:
                    continue
        return delays


def calls(running: Cluster, until: threading.Event) -> list[float]:
    """Seconds of each `GET /experiments`, called sequentially."""
    taken = []
    with closing(running.client()) as client:
        while not until.is_set():
            begun = time.perf_counter()
            client.get("/api/v1/experiments?limit=50")
            taken.append(time.perf_counter() - begun)
            time.sleep(0.005)
    return taken


def measured(running: Cluster, seconds: int) -> tuple[list[float], list[float]]:
    over = threading.Event()
    taken: list[float] = []
    asking = threading.Thread(target=lambda: taken.extend(calls(running, over)))
    asking.start()
    try:
        delays = delays_of_lines(running, seconds)
    finally:
        over.set()
        asking.join()
    return delays, taken


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def main(seconds: int = 10, rounds: int = 3) -> list[Row]:
    alone: list[tuple[list[float], list[float]]] = []
    beside: list[tuple[list[float], list[float]]] = []
    rates = []
    with cluster(slots=2) as running, closing(running.client()) as client:
        for _ in range(rounds):
            alone.append(measured(running, seconds))
            noisy = started(client, NOISE)
            trial = trial_of(client, noisy)
            while not (before := stored(client, trial)):
                time.sleep(0.1)
            begun = time.perf_counter()
            beside.append(measured(running, seconds))
            rates.append((stored(client, trial) - before) / (time.perf_counter() - begun))
            client.post(f"/api/v1/experiments/{noisy}/kill", {})
            while client.get(f"/api/v1/experiments/{noisy}")["experiment"]["state"] != "STATE_CANCELED":
                time.sleep(0.1)
    return [
        _row(
            "a line of a quiet task, from its `print` to a client that follows the log, p99",
            alone,
            beside,
            lambda m: m[0],
        ),
        _row("`GET /experiments`, p99", alone, beside, lambda m: m[1]),
        Row(
            name="lines of the noisy task that were stored",
            subject=Spread.of(rates, "lines/s"),
            bound_name="lines that it writes",
            bound=Spread.one(LINES_PER_S, "lines/s"),
            result=min(rates) / LINES_PER_S,
        ),
    ]


def stored(client: Client, trial: int) -> int:
    """Number of stored lines, which the newest line contains."""
    text = client.send("GET", f"/api/v1/trials/{trial}/logs?limit=20&orderBy=ORDER_BY_DESC").decode()
    return max(map(int, re.findall(r"noise (\d+) of", text)), default=0)


def _row(
    name: str,
    alone: list[tuple[list[float], list[float]]],
    beside: list[tuple[list[float], list[float]]],
    part: Callable[[tuple[list[float], list[float]]], list[float]],
) -> Row:
    with_noise = Spread.of([p99(part(each)) * 1000 for each in beside], "ms")
    without = Spread.of([p99(part(each)) * 1000 for each in alone], "ms")
    return Row(
        name=name,
        subject=with_noise,
        bound_name="without the noisy task",
        bound=without,
        result=with_noise.median / without.median,
        target=LATE,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for row in main(arguments.seconds, arguments.rounds):
        print(" | ".join(row.cells()))
