"""No-op trials per second through a whole cluster, compared with the rate at which this machine starts the same program directly.

4 clients submit 1,000 trials to one agent with 256 artificial slots. Each trial is a separate experiment with its own process,
private directory and token. The time is from the first request until the last exit code is committed. Afterwards the benchmark
reads every trial's line through the log API; a missing line is an error. If Slurm is installed and answers, the benchmark also
measures the rate of `srun` from 4 clients.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from benchmarks.cluster import Cluster, cluster, experiment
from benchmarks.report import Row, Spread, Target
from support.postgres import find_programs, postgres_server

TRIALS, CLIENTS, SLOTS = 1000, 4, 256
BARE = 200
AT_ONCE = 2
TARGET = 0.15
LIMIT_S = 900.0
PROGRAM = [sys.executable, "-S", "-E", "-c", "print('done')"]


def main() -> list[Row]:
    rows = [_row("SQLite", None)]
    if find_programs() is not None:
        with postgres_server() as server:
            rows.append(_row("PostgreSQL", server.db_config(server.new_database())))
    if (slurm := _slurm_rate()) is not None:
        rows.append(Row(name="srun of the same program, 4 clients", subject=Spread.one(slurm, "a second")))
    return rows


def _row(database: str, db: Mapping[str, Any] | None) -> Row:
    """Measures the direct rate before and after, because a machine's speed drifts."""
    before = _bare_rate()
    with cluster(slots=SLOTS, db=db) as running:
        used = [_processor_s(process) for process in (running.master, running.agent)]
        rate = _trials_rate(running)
        used = [_processor_s(process) - s for process, s in zip((running.master, running.agent), used, strict=True)]
    bare = [before, _bare_rate()]
    return Row(
        name=f"{TRIALS} no-op trials, {database}",
        subject=Spread.one(rate, "a second"),
        bound_name=f"the program bare, {AT_ONCE} at a time",
        bound=Spread.of(bare, "a second"),
        result=rate / Spread.of(bare, "").median,
        target=Target(at_least=TARGET),
        notes="{:.1f} ms of the master's processor time each, {:.1f} of the agent's".format(
            *(1000 * s / TRIALS for s in used)
        ),
    )


def _processor_s(process: subprocess.Popen[bytes] | None) -> float:
    """Processor time up to now, without that of child processes."""
    assert process is not None
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _trials_rate(running: Cluster) -> float:
    body = experiment(PROGRAM)

    def submit(count: int) -> list[int]:
        client = running.client()
        found = [_id_of(client.send("POST", "/api/v1/experiments", body)) for _ in range(count)]
        client.close()
        return found

    start = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        submitted = [id_ for ids in pool.map(submit, [TRIALS // CLIENTS] * CLIENTS) for id_ in ids]
    _until_completed(running, len(submitted))
    rate = len(submitted) / (time.monotonic() - start)
    client = running.client()
    silent = [id_ for id_ in submitted if "done\n" not in client.lines(id_)]
    client.close()
    if silent:
        raise RuntimeError(f"{len(silent)} trials have no line in their log, the first is {silent[0]}")
    return rate


def _id_of(answer: bytes) -> int:
    """Reads the response partially: the clients' work would slow the cluster, which uses the same processors."""
    mark = b'"experiment":'
    place = answer.index(b'"id":', answer.index(mark)) + 5
    return int(answer[place : place + 20].split(b",")[0].split(b"}")[0])


def _until_completed(running: Cluster, count: int) -> None:
    """Polls with one request: each request during the measurement takes time of the master."""
    client = running.client()
    end = time.monotonic() + LIMIT_S
    ended = "/api/v1/experiments?limit=1&states=STATE_COMPLETED&states=STATE_ERROR"
    while client.get(ended)["pagination"]["total"] < count and time.monotonic() < end:
        time.sleep(0.2)
    completed = client.get("/api/v1/experiments?limit=1&states=STATE_COMPLETED")["pagination"]["total"]
    if completed < count:
        raise RuntimeError(f"{completed} of {count} trials completed\n{running.log('agent')[-3000:]}")
    client.close()


def _bare_rate() -> float:
    return _rate_of(lambda: subprocess.run(PROGRAM, stdout=subprocess.DEVNULL, check=True), AT_ONCE)


def _slurm_rate() -> float | None:
    srun = shutil.which("srun")
    if srun is None:
        return None
    command = [srun, "--quiet", "--ntasks=1", *PROGRAM]
    if subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60
    ).returncode:
        return None
    return _rate_of(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True), CLIENTS)


def _rate_of(run: Callable[[], object], at_once: int) -> float:
    start = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(run) for _ in range(BARE)]:
            done.result()
    return BARE / (time.monotonic() - start)
