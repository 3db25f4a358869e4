"""Rates at which reports and log lines are stored in PostgreSQL, compared with the rate of the database alone.

    python -m benchmarks.ingest [--rounds 5] [--requests 60]

- our batch path with 500 reports per request, compared with COPY of batches of 500 into the same table;
- log lines by the contract's path, 500 per request, compared with the same;
- the contract's path for metrics, one report per request, compared with a bare aiohttp handler with group commit.

The real master runs in its own process, with a private PostgreSQL server with default settings. The client is a process that sends
prepared requests. The subjects run in turn, in several rounds.

"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import jwt
import psutil

from benchmarks.cluster import PASSWORD, Client, Cluster, cluster, experiment
from benchmarks.ingest_client import write_requests
from benchmarks.report import Row, Spread, Target, ratio
from resolute_master.api.auth.authenticate import ALGORITHM, TASK_TOKEN_HEADER, TokenKind
from resolute_master.seal.cipher import Key
from resolute_master.seal.cluster_secrets import SEAL
from support.postgres import PostgresServer, postgres_server

SEALING_KEY = Key.new()
"""Configuration of the measured master."""
BATCH = 500
BATCH_CONNECTIONS = 4
"""Tasks that send batches concurrently."""
TRIALS = 8
"""Tasks that send one report per request."""
SINGLE_CONNECTIONS = 16 * TRIALS
"""Concurrent requests of one report each."""
COPIED_TRIAL = 1_000_000
"""An id that no trial has, for the rows of COPY."""

METRICS = {"loss": 0.693147180559, "accuracy": 0.5, "learning_rate": 0.001, "gradient_norm": 1.25}
LINE = "step {}: a line of some eighty characters as training code writes them, loss 0.693147"


@dataclass(frozen=True, slots=True)
class _Reporter:
    """A trial whose first run exists, and its token."""

    id: int
    task: str
    run: int
    token: str

    @classmethod
    def of(cls, client: Client, server: PostgresServer, database: str) -> _Reporter:
        answer = client.post("/api/v1/experiments", json.loads(experiment(["true"])))
        (trial,) = client.get(f"/api/v1/experiments/{answer['experiment']['id']}/trials")["trials"]
        id_, task = int(trial["id"]), trial["taskIds"][0] if trial.get("taskIds") else trial["taskId"]
        run = _wait_for_run(client, id_)
        return cls(id_, task, run, _task_token(server, database, f"{task}.{run}"))


class Bench:
    """One master on one database, with trials for the reports. Every round uses new steps and lines."""

    def __init__(self, directory: Path, server: PostgresServer, running: Cluster, url: str, requests: int) -> None:
        self._directory = directory
        self._url = url
        self._cluster = running
        self._requests = requests
        self._steps = itertools.count(1)
        client = running.client()
        database = url.rpartition("/")[2]
        self._trials = [_Reporter.of(client, server, database) for _ in range(TRIALS)]
        client.close()
        self.server_cpu_s = 0.0
        """Processor time of the server per row of the last run."""

    # -- ours ----------------------------------------------------------------------------------------------------

    def batches(self) -> float:
        """Reports per second by our batch path, of one trial."""
        trial = self._trials[0]
        path = f"/api/v1/trials/{trial.id}/metrics/batch"
        requests = [_request(path, trial, self._batch(trial)) for _ in range(self._requests)]
        return self._sent(requests, BATCH_CONNECTIONS, BATCH)

    def lines(self) -> float:
        """Log lines per second by the contract's path, of one trial."""
        trial = self._trials[0]
        requests = [_request("/task-logs", trial, self._lines(trial)) for _ in range(self._requests)]
        return self._sent(requests, BATCH_CONNECTIONS, BATCH)

    def singles(self) -> float:
        """Reports per second by the contract's path, of all trials."""
        return self._sent(self._single_requests(), SINGLE_CONNECTIONS, 1)

    def bare(self, pid: int, port: int) -> float:
        """Reports per second that the bare handler stores."""
        return self._sent(self._single_requests(), SINGLE_CONNECTIONS, 1, pid, port)

    def _single_requests(self) -> list[bytes]:
        trials = itertools.islice(itertools.cycle(self._trials), self._requests * 50)
        return [_request(f"/api/v1/trials/{each.id}/metrics", each, self._single(each)) for each in trials]

    def _batch(self, trial: _Reporter) -> Any:
        reports = [{"stepsCompleted": next(self._steps), "metrics": METRICS} for _ in range(BATCH)]
        return {"group": "training", "trialRunId": trial.run, "reports": reports}

    def _single(self, trial: _Reporter) -> Any:
        values = {
            "trialId": trial.id,
            "trialRunId": trial.run,
            "stepsCompleted": next(self._steps),
            "metrics": {"avgMetrics": METRICS},
        }
        return {"group": "training", "metrics": values}

    def _lines(self, trial: _Reporter) -> Any:
        return [
            {
                "taskId": trial.task,
                "allocationId": f"{trial.task}.1",
                "containerId": "c0ffee",
                "rankId": 0,
                "timestamp": "2026-01-01T00:00:00.000000Z",
                "level": "LOG_LEVEL_INFO",
                "stdtype": "stdout",
                "source": "task",
                "log": LINE.format(next(self._steps)),
            }
            for _ in range(BATCH)
        ]

    def _sent(
        self, requests: list[bytes], connections: int, rows: int, pid: int | None = None, port: int | None = None
    ) -> float:
        """Rows per second; to the master unless another receiver is given."""
        assert self._cluster.master is not None
        server = psutil.Process(pid or self._cluster.master.pid)
        before = sum(server.cpu_times()[:2])
        rate = self._send(requests, connections, port or self._cluster.port) * rows
        self.server_cpu_s = (sum(server.cpu_times()[:2]) - before) / (len(requests) * rows)
        return rate

    def _send(self, requests: list[bytes], connections: int, port: int) -> float:
        """Requests a second."""
        file = self._directory / "requests"
        write_requests(file, requests)
        command = [sys.executable, "-m", "benchmarks.ingest_client", str(port), str(connections), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the client failed: {done.stderr[-2000:]}\n{self._cluster.log('master')[-2000:]}")
        return len(requests) / float(done.stdout)

    # -- the database alone --------------------------------------------------------------------------------------

    def copied(self, table: str) -> float:
        """Rows per second by COPY, with one transaction per batch. The batches are prepared before the measurement."""
        return asyncio.run(self._copied(table))

    async def _copied(self, table: str) -> float:
        connection = await asyncpg.connect(self._url)
        try:
            columns, row = _METRIC_ROW if table == "metrics" else _LOG_ROW
            batches = [[row(next(self._steps)) for _ in range(BATCH)] for _ in range(self._requests)]
            began = time.perf_counter()
            for batch in batches:
                await connection.copy_records_to_table(table, records=batch, columns=columns)
            return self._requests * BATCH / (time.perf_counter() - began)
        finally:
            await connection.close()


def _request(path: str, trial: _Reporter, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: master\r\n{TASK_TOKEN_HEADER}: Bearer {trial.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _metric_row(step: int) -> tuple[Any, ...]:
    return (COPIED_TRIAL, 1, "training", step, 1_700_000_000_000_000, False, json.dumps(METRICS), None)


def _log_row(step: int) -> tuple[Any, ...]:
    key, line = f"c0ffeec0-ffee-4000-8000-{step:012x}", LINE.format(step)
    return (key, "1.task", "1.task.1", "", "c0ffee", 0, 1_700_000_000_000_000, "INFO", "stdout", "task", line)


_METRIC_ROW = (
    ["trial_id", "run_id", "metric_group", "steps_completed", "reported_at", "archived", "metrics", "batch_metrics"],
    _metric_row,
)
_LOG_ROW = (
    ["key", "task_id", "allocation_id", "agent_id", "container_id", "rank", "at", "level", "stdtype", "source", "log"],
    _log_row,
)


def _wait_for_run(client: Client, trial: int) -> int:
    """The trial's first run, which exists as soon as the trial requests slots."""
    for _ in range(200):
        for task in client.get(f"/api/v1/trials/{trial}")["trial"].get("taskIds", ()):
            if client.get(f"/api/v1/tasks/{task}")["task"]["allocations"]:
                return 1
        time.sleep(0.05)
    raise RuntimeError(f"trial {trial} has no run")


def _task_token(server: PostgresServer, database: str, allocation: str) -> str:
    """The token that the master would give the task of this allocation, signed with the master's stored key."""

    def setting(name: str) -> Any:
        return json.loads(server.execute(f"SELECT value FROM settings WHERE name = '{name}'", database))

    data_key = Key.from_text(SEALING_KEY.open(SEAL, setting(SEAL)["key"]))
    key = data_key.open("token_key", setting("token_key")["sealed"])
    claims = {"kind": TokenKind.ALLOCATION.value, "allocation": allocation, "user": 2, "iat": 0}
    return jwt.encode(claims, key, algorithm=ALGORITHM)


@contextmanager
def _bare_handler(url: str) -> Iterator[tuple[int, int]]:
    """Starts the bare handler, and returns its process and port."""
    command = [sys.executable, "-m", "benchmarks.ingest_bare", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def measure(rounds: int, requests: int) -> list[Row]:
    """Runs the subjects in turn, so that a drift of the machine's speed affects all equally. The first round is a warm-up."""
    found: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="resolute-ingest-")))
        server = stack.enter_context(postgres_server())
        database = server.new_database()
        running = stack.enter_context(
            cluster(
                slots=0,
                db=server.db_config(database),
                security={"initial_user_password": PASSWORD, "seal": {"key": SEALING_KEY.text}},
                launch_error=False,
                resource_pools=[{"pool_name": "default"}],
            )
        )
        pid, port = stack.enter_context(_bare_handler(server.url(database)))
        bench = Bench(directory, server, running, server.url(database), requests)
        subjects: dict[str, Callable[[], float]] = {
            "batches": bench.batches,
            "copied metrics": lambda: bench.copied("metrics"),
            "lines": bench.lines,
            "copied lines": lambda: bench.copied("logs"),
            "singles": bench.singles,
            "bare": lambda: bench.bare(pid, port),
        }
        for number in range(rounds + 1):
            for name, run in subjects.items():
                rate = run()
                if number:
                    found.setdefault(name, []).append(rate)
                    cpu.setdefault(name, []).append(bench.server_cpu_s)
    return [
        _row("metrics, 500 a request", "batches", "raw COPY", "copied metrics", 0.60, found, cpu),
        _row("log lines, 500 a request", "lines", "raw COPY", "copied lines", 0.50, found, cpu),
        _row("metrics, one a request", "singles", "bare handler with group commit", "bare", 0.60, found, cpu),
    ]


def _row(
    name: str,
    subject: str,
    bound_name: str,
    bound: str,
    least: float,
    found: dict[str, list[float]],
    cpu: dict[str, list[float]],
) -> Row:
    return Row(
        name=name,
        subject=Spread.of(found[subject], "a second"),
        bound_name=bound_name,
        bound=Spread.of(found[bound], "a second"),
        result=ratio(found[subject], found[bound]),
        target=Target(at_least=least),
        notes=f"{_micros(cpu[subject])} of the master's processor time each"
        + (f"; the bare handler takes {_micros(cpu[bound])}" if bound == "bare" else ""),
    )


def _micros(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:.0f} µs"


def main() -> list[Row]:
    return measure(rounds=5, requests=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=60)
    given = parser.parse_args()
    for each in measure(given.rounds, given.requests):
        print("  |  ".join(cell for cell in each.cells() if cell))
