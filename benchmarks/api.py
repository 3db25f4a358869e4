"""Latency of get and list calls during an ingest of metric reports at 80 % of its maximum rate, compared with an idle master.

1,000 experiments exist. The ingest uses our batch path, with 500 reports per request from one process with 4 connections; the
benchmark measures its maximum first. Then one caller makes the same calls alternately without and with the ingest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.cluster import Client, Cluster, cluster, experiment
from benchmarks.report import Row, Spread, Target, percentile
from support.postgres import find_programs, postgres_server

EXPERIMENTS = 1000
ROUNDS, CALLS = 6, 100
SHARE = 0.8
MAXIMUM_S = 5.0
TARGET = 3.0


def main() -> list[Row]:
    if find_programs() is None:
        return [_measured("SQLite", None)]
    with postgres_server() as server:
        return [_measured("PostgreSQL", server.db_config(server.new_database()))]


def _measured(database: str, db: Mapping[str, Any] | None) -> Row:
    with cluster(slots=1, db=db) as running:
        client = running.client()
        trial = _reporting_trial(client)
        _many_experiments(client)
        paths = _calls(client)
        maximum = _maximum(running, trial)
        idle: list[float] = []
        busy: list[float] = []
        _timed(client, paths)  # once, to be warm
        for number in range(ROUNDS):
            idle += _timed(client, paths)
            with _ingest(running, trial, first=(number + 2) * 100_000_000, rate=SHARE * maximum):
                busy += _timed(client, paths)
        client.close()
    return Row(
        name=f"get and list calls under ingest, p99, {database}",
        subject=Spread.one(percentile(busy, 99), "ms"),
        bound_name="the same when idle, p99",
        bound=Spread.one(percentile(idle, 99), "ms"),
        result=percentile(busy, 99) / percentile(idle, 99),
        target=Target(at_most=TARGET),
        notes=(
            f"medians {percentile(busy, 50):.1f} and {percentile(idle, 50):.1f} ms; ingest of {SHARE * maximum:,.0f} "
            f"reports a second, {SHARE:.0%} of its maximum; {EXPERIMENTS} experiments"
        ),
    )


def _reporting_trial(client: Client) -> int:
    """A trial that runs until the cluster ends. Only a trial with a run can report."""
    made = client.send("POST", "/api/v1/experiments", experiment(["sleep", "3600"]))
    id_ = _id(made)
    for _ in range(600):
        trials = client.get(f"/api/v1/experiments/{id_}/trials")["trials"]
        if trials and trials[0]["state"] == "STATE_RUNNING":
            return int(trials[0]["id"])
        time.sleep(0.1)
    raise RuntimeError("the reporting trial does not run")


def _many_experiments(client: Client) -> None:
    body = experiment(["true"]).replace(b'"activate": true', b'"activate": false')
    for _ in range(EXPERIMENTS):
        client.send("POST", "/api/v1/experiments", body)


def _id(answer: bytes) -> int:
    return int(json.loads(answer)["experiment"]["id"])


def _calls(client: Client) -> list[str]:
    """Typical calls of users and tools: single objects, and pages of lists."""
    some = [one["id"] for one in client.get("/api/v1/experiments?limit=5")["experiments"]]
    return [
        *(f"/api/v1/experiments/{id_}" for id_ in some),
        *(f"/api/v1/experiments/{id_}/trials" for id_ in some),
        "/api/v1/experiments?limit=20",
        "/api/v1/experiments?limit=20&offset=500&states=STATE_PAUSED",
        "/api/v1/job-queues-v2?resourcePool=default&pagination.limit=20",
        "/api/v1/agents",
        "/api/v1/resource-pools",
        "/api/v1/me",
    ]


def _timed(client: Client, paths: list[str]) -> list[float]:
    """Milliseconds of each call, a few at a time with pauses in between."""
    taken = []
    for number in range(CALLS):
        path = paths[number % len(paths)]
        start = time.perf_counter()
        client.send("GET", path)
        taken.append(1000 * (time.perf_counter() - start))
        time.sleep(0.01)
    return taken


def _maximum(running: Cluster, trial: int) -> float:
    """Maximum number of reports per second: each connection sends the next batch when the last one is answered."""
    command = [*_command(running, trial, first=1, rate=0.0), str(MAXIMUM_S)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@contextmanager
def _ingest(running: Cluster, trial: int, *, first: int, rate: float) -> Iterator[None]:
    with subprocess.Popen(
        [*_command(running, trial, first=first, rate=rate), "3600"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # The ingest has started.
            yield
            if process.poll() is not None:
                raise RuntimeError("the ingest ended by itself: what was measured was not under load")
        finally:
            process.terminate()


def _command(running: Cluster, trial: int, *, first: int, rate: float) -> list[str]:
    arguments = (running.port, running.token, trial, first, rate)
    return [sys.executable, "-m", "benchmarks.api_ingest", *map(str, arguments)]
