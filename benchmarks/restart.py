"""Time until a killed master schedules again: 10,000 live jobs, 1,000 agents with 8,000 running tasks.

    python -m benchmarks.restart [--database sqlite|postgres] [--agents 1000] [--jobs 10000] [--restarts 20]

The engine's commands store the state once; each start uses a copy of it, as after kill -9. At the kill every agent and every task
loses the master and reconnects over real links, with the retry pauses of the real ones. Some tasks end meanwhile, so that slots
become free for pending jobs. The benchmark measures from the start of the master's process (including fork, exec and imports) until

- the first cycle is committed: everything is loaded, and every pool has been scheduled with all jobs and agents,
- the first allocation is placed on a reconnected agent,
- all agents are connected again (they retry with a growing, random pause).

The benchmark reports elapsed time and the processor time of the master's process: on a busy machine elapsed time is longer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import Row, Spread, Target, percentile
from benchmarks.restart_clients import Callers
from benchmarks.restart_state import POOL, Returning, store_cluster
from support.ports import free_port
from support.postgres import PostgresServer, postgres_server

RESTARTS = 20
TARGET_S = 2.0
READY_S = 300.0
SLOTS = 8
ENDED_MEANWHILE = 40
"""Tasks that end while the master is down: twenty per second, as in `benchmarks.load`, for two seconds."""

STAGES = (
    ("imported", "its program is imported"),
    ("opened", "its database is open"),
    ("boot", "its first cycle is committed"),
    ("placed", "its first allocation is placed"),
    ("back", "all agents are back"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Since the start of the process."""

    after_s: float
    cpu_s: float
    """Processor time of the process and its threads."""
    connected: int = 0
    """Reconnected agents."""


class StoredCluster:
    """The state on disk, and copies of it for the starts."""

    def __init__(self, directory: Path, server: PostgresServer | None, *, agents: int, jobs: int) -> None:
        self.agents = agents
        self._directory = directory
        self._server = server
        self._database = server.new_database() if server is not None else ""
        self._original = directory / "original"
        self._original.mkdir()
        config = self._configured(self._original, self._database, port=free_port())
        stored = store_cluster(config, agents=agents, slots=SLOTS, jobs=jobs, ended=ENDED_MEANWHILE)
        self.returning: tuple[Returning, ...] = asyncio.run(stored)

    def _configured(self, directory: Path, database: str, *, port: int) -> Path:
        db: Mapping[str, object] = {"type": "sqlite"}
        if self._server is not None:
            db = self._server.db_config(database)
        file = directory / "master.yaml"
        config = {
            "host": "127.0.0.1",
            "port": port,
            "cluster_state_dir": str(directory / "state"),
            "db": dict(db),
            "security": {"initial_user_password": "correct horse"},
            "resource_pools": [{"pool_name": POOL, "agent_reconnect_wait": "60s"}],
        }
        file.write_text(yaml.safe_dump(config))
        return file

    def restart(self, seed: int) -> dict[str, Moment]:
        """The times of `STAGES`, by name."""
        directory = self._directory / f"restart-{seed}"
        shutil.copytree(self._original, directory)
        database = self._server.new_database(self._database) if self._server is not None else ""
        port = free_port()
        config = self._configured(directory, database, port=port)
        notes, log = directory / "notes.jsonl", directory / "master.log"
        command = [sys.executable, "-m", "benchmarks.restart_master", str(config), str(notes)]
        with log.open("wb") as file:
            begun = time.monotonic()
            master = subprocess.Popen(command, stdout=file, stderr=file, env=self._environment())
        callers = Callers(port, self.returning, lost_at=begun, seed=seed)
        found: dict[str, Moment] = {}
        looked = begun

        def done() -> bool:
            nonlocal found, looked
            now = time.monotonic()
            if now - looked < 0.1:
                return False
            looked = now
            if master.poll() is not None or now > begun + READY_S:
                raise SystemExit(f"it does not come back: {log.read_text()[-3000:]}")
            found = moments(notes, begun, agents=self.agents)
            return len(found) == len(STAGES)

        try:
            callers.run(done)
        finally:
            master.send_signal(signal.SIGKILL)
            master.wait()
            callers.close()
            shutil.rmtree(directory)
        return found

    def _environment(self) -> dict[str, str]:
        """Environment with a cache of compiled modules, which an installed program has, even if the caller disables writing it."""
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**own, "PYTHONPYCACHEPREFIX": str(self._directory / "bytecode")}


def moments(notes: Path, begun: float, *, agents: int) -> dict[str, Moment]:
    """The records of the master up to now."""
    found: dict[str, Moment] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        note: dict[str, Any] = json.loads(line)
        moment = Moment(after_s=note["at"] - begun, cpu_s=note["cpu_s"], connected=note.get("connected", 0))
        name = "back" if note["what"] == "agents" and moment.connected == agents else note["what"]
        if name != "agents":
            found.setdefault(name, moment)
    return found


def main(arguments: Sequence[str] = ()) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart")
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="default: both, one after the other")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--restarts", type=int, default=RESTARTS)
    given = parser.parse_args(arguments)
    # A connection for each agent and each task.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: list[Row] = []
    for database in [given.database] if given.database else ["sqlite", "postgres"]:
        rows += measure(database, agents=given.agents, jobs=given.jobs, restarts=given.restarts)
    return rows


def measure(database: str, *, agents: int, jobs: int, restarts: int) -> list[Row]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="resolute-restart-")))
        server = stack.enter_context(postgres_server()) if database == "postgres" else None
        cluster = StoredCluster(directory, server, agents=agents, jobs=jobs)
        cluster.restart(0)  # the first one compiles
        found: list[dict[str, Moment]] = []
        for number in range(1, restarts + 1):
            found.append(cluster.restart(number))
            print("  ".join(_text(name, moment) for name, moment in found[-1].items()), flush=True)
    about = f"{agents} agents, {jobs} jobs"
    stages = [row for stage, text in STAGES for row in _rows(database, found, stage, text)]
    back = [float(each["placed"].connected) for each in found]
    return [
        *stages,
        Row(name=f"{database}: agents that are back when it places", subject=Spread.of(back, "agents"), notes=about),
    ]


def _text(name: str, moment: Moment) -> str:
    return f"{name} {moment.after_s:.2f} s ({moment.cpu_s:.2f} s computed, {moment.connected} back)"


def _rows(database: str, found: list[dict[str, Moment]], stage: str, text: str) -> list[Row]:
    seconds = [each[stage].after_s for each in found]
    judged = stage == "placed"
    passed = Row(
        name=f"{database}: {text}",
        subject=Spread.of(seconds, "s"),
        result=percentile(seconds, 99),
        unit="s",
        target=Target(at_most=TARGET_S) if judged else None,
        notes=f"p99 of {len(seconds)} restarts",
    )
    computed = Row(
        name=f"{database}: processor time of the master until {text}",
        subject=Spread.of([each[stage].cpu_s for each in found], "s"),
    )
    return [passed, computed]


if __name__ == "__main__":
    for row in main(sys.argv[1:]):
        print("  |  ".join(cell for cell in row.cells() if cell))
