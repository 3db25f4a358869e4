"""Latency of the calls behind a page with a large store, and their effect on other callers.

    python -m benchmarks.reads [--experiments 10000] [--reports 100000] [--database sqlite|postgres]

Before the master starts, the store is filled with pending experiments in one queue and with the reports of one trial. Each call is
repeated on one connection. `explain` is called for the last job of the queue, the first time on a master without a cached answer.
Stalls are those of `GET /api/v1/me`, called every few milliseconds while another connection reads all reports of the trial and the
complete lists.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cluster import Client, Cluster, disk
from benchmarks.load import fill
from benchmarks.report import Row, Spread, Target, percentile
from resolute.config import load_master_config
from resolute_master.app import open_store
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from support.postgres import find_programs, postgres_server

EXPERIMENTS, REPORTS = 10_000, 100_000
CALLS, PAUSE_S = 30, 0.005
BATCH = 5_000
TRIAL = 1
STALL_S = 8.0
VALIDATION_EVERY = 100


def main(arguments: list[str] | None = None) -> list[Row]:
    return on_databases("reads", arguments, {"experiments": EXPERIMENTS, "reports": REPORTS}, _measured)


def on_databases(
    program: str,
    arguments: list[str] | None,
    numbers: Mapping[str, float],
    measured: Callable[[str, Mapping[str, Any] | None, argparse.Namespace], list[Row]],
) -> list[Row]:
    """Rows of each requested and available database. `numbers` become flags of the same names, with these defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default=None)
    wanted = parser.parse_args(arguments or [])
    rows: list[Row] = []
    if wanted.database != "postgres":
        rows += measured("SQLite", None, wanted)
    if wanted.database != "sqlite" and find_programs() is not None:
        with postgres_server() as server:
            rows += measured("PostgreSQL", server.db_config(server.new_database()), wanted)
    return rows


def _measured(database: str, db: Mapping[str, Any] | None, wanted: argparse.Namespace) -> list[Row]:
    with (
        filled(db, wanted.experiments, partial(_report, reports=wanted.reports)) as running,
        closing(running.client()) as client,
    ):
        rows = [_explain(client, wanted.experiments)]
        rows += [_call(client, name, path, target) for name, path, target in _CALLS]
        rows.append(_stalls(running, client))
    return [named(row, database) for row in rows]


@contextmanager
def filled(
    db: Mapping[str, Any] | None, waiting: int, more: Callable[[Path], Coroutine[Any, Any, None]]
) -> Iterator[Cluster]:
    """A cluster that starts with `waiting` pending experiments and with the rows that `more` stores; `more` gets the
    configuration."""
    with tempfile.TemporaryDirectory(prefix="resolute-bench-", dir=disk()) as directory:
        running = Cluster(Path(directory), slots=0, db=db)
        config = running.configured()
        asyncio.run(fill(config, waiting))
        asyncio.run(more(config))
        try:
            running.start()
            yield running
        finally:
            running.close()


async def _report(config_file: Path, reports: int) -> None:
    """Two metrics at each step, and occasional validations."""
    store = await open_store(load_master_config(config_file, {}, {}))
    try:
        for first in range(1, reports + 1, BATCH):
            steps = range(first, min(first + BATCH, reports + 1))
            await store.append_metrics([_one("training", step) for step in steps])
            await store.append_metrics([_one("validation", step) for step in steps if step % VALIDATION_EVERY == 0])
    finally:
        await store.close()


def _one(group: str, step: int) -> MetricReport:
    return MetricReport(
        trial_id=TrialId(TRIAL),
        run_id=1,
        group=group,
        steps_completed=step,
        reported_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=step),
        metrics={"loss": 1 / step, "learning_rate": 0.1 + (step % 7) / 100},
    )


# ------------------------------------------------------------------------------------------------------------- calls

_CALLS = (
    ("a trial and its summary", f"/api/v1/trials/{TRIAL}", 10.0),
    ("its timeline, 100 of it", f"/api/v1/trials/{TRIAL}/workloads?limit=100", 10.0),
    ("its timeline, the latest 100", f"/api/v1/trials/{TRIAL}/workloads?limit=100&orderBy=ORDER_BY_DESC", 10.0),
    ("the projects of a workspace", "/api/v1/workspaces/1/projects", 20.0),
    (
        "a page of the queue",
        "/api/v1/job-queues-v2?resourcePool=default&limit=100",
        20.0,
    ),
    ("a list of 100 experiments", "/api/v1/experiments?limit=100", 30.0),
)
"""Calls with their limits in milliseconds."""


def _call(client: Client, name: str, path: str, at_most: float) -> Row:
    client.send("GET", path)  # once, to be warm
    taken = [timed(lambda: client.send("GET", path)) for _ in range(CALLS)]
    return as_row(name, taken, at_most)


def _explain(client: Client, last: int) -> Row:
    """The explanation of the last job in the queue."""
    path = f"/api/v1/jobs/{last}/explain"
    first = timed(lambda: client.send("GET", path))
    taken = [timed(lambda: client.send("GET", path)) for _ in range(CALLS)]
    return as_row("explain", taken, None, notes=f"the first one {first:.0f} ms")


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begun)


def as_row(name: str, taken: list[float], at_most: float | None, notes: str = "") -> Row:
    """Rows of calls with a limit in milliseconds."""
    spread = Spread.of(taken, "ms")
    return Row(
        name=name,
        subject=spread,
        result=spread.median,
        unit="ms",
        target=None if at_most is None else Target(at_most=at_most),
        notes=notes,
    )


# ------------------------------------------------------------------------------------------------------------ stalls

_LONG = (
    f"/api/v1/trials/metrics/trial_metrics?trialIds={TRIAL}&group=training",
    f"/api/v1/trials/{TRIAL}/workloads",
    "/api/v1/experiments?limit=-1",
    "/api/v1/job-queues-v2?limit=5000",
)


def _stalls(running: Cluster, client: Client) -> Row:
    """Latency of a small call during the long ones."""
    over = threading.Event()
    longest: dict[str, float] = {}

    def read() -> None:
        with closing(running.client()) as other:
            while not over.is_set():
                for path in _LONG:
                    took = timed(lambda path=path: other.send("GET", path))  # type: ignore[misc]
                    longest[path] = max(took, longest.get(path, 0.0))

    reader = threading.Thread(target=read)
    reader.start()
    taken: list[float] = []
    until = time.monotonic() + STALL_S
    while time.monotonic() < until:
        taken.append(timed(lambda: client.send("GET", "/api/v1/me")))
        time.sleep(PAUSE_S)
    over.set()
    reader.join()
    p99 = percentile(taken, 99)
    notes = f"the longest of {len(taken)}: {max(taken):.0f} ms; the long ones at most " + ", ".join(
        f"{took:.0f}" for took in longest.values()
    )
    return Row(
        name="a small call beside long reads, p99",
        subject=Spread.one(p99, "ms"),
        result=p99,
        unit="ms",
        target=Target(at_most=50.0),
        notes=f"{notes} ms",
    )


def named(row: Row, database: str) -> Row:
    """The row, with the name of the database."""
    return replace(row, name=f"{row.name}, {database}")


if __name__ == "__main__":
    import sys

    for each in main(sys.argv[1:]):
        print(each.name, each.subject.text(), each.notes)
