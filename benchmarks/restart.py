"""How long a killed master takes until it schedules again: 10,000 live jobs, 1,000 agents with 8,000 running tasks.

    python -m benchmarks.restart [--database sqlite|postgres] [--agents 1000] [--jobs 10000] [--restarts 20]

The state is stored by the engine's own commands. 1,000 real agents in another process (with the scripted runtime) join over
real links and fill their slots; tasks end all the time. Then the master is killed with -9 and started again, many times.
From the start of its process (fork and exec, imports included) until

- the first cycle is committed: everything is loaded, and every pool has been looked at with all jobs and agents known,
- the first allocation is placed on an agent that has come back,
- all agents are connected again (they try again with a growing, random pause).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.load import Cluster, Load, fill
from benchmarks.report import Row, Spread, Target, percentile
from support.postgres import postgres_server

RESTARTS = 20
TARGET_S = 2.0
READY_S = 300.0
TASK_S = 400.0
"""8,000 tasks of this length make twenty slots free in each second."""
PAUSE_S = 1.0
"""Of work between the return of all agents and the next kill."""

STAGES = (
    ("imported", "its program is imported"),
    ("opened", "its database is open"),
    ("boot", "its first cycle is committed"),
    ("placed", "its first allocation is placed"),
)


class RestartedCluster(Cluster):
    """The load's cluster, whose master writes down when it has committed what."""

    @property
    def notes_file(self) -> Path:
        return self.directory / "notes.jsonl"

    def spawn(self) -> tuple[int, float]:
        """The pid and the moment of the start; nothing is waited for."""
        with (self.directory / "master.log").open("ab") as log:
            command = [sys.executable, "-m", "benchmarks.restart_master", str(self.config_file), str(self.notes_file)]
            begun = time.monotonic()
            self._master = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment())
        return self._master.pid, begun

    def _environment(self) -> dict[str, str]:
        """An installed program is compiled: that is not to be measured, also where Python is kept from writing it down."""
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**own, "PYTHONPYCACHEPREFIX": str(self.directory / "bytecode")}

    def restart(self) -> dict[str, float]:
        """Seconds from the start of the process to each stage."""
        self.kill_master()
        pid, begun = self.spawn()
        end = begun + READY_S
        while True:
            notes = self._notes(pid)
            back = [note["at"] for note in notes if note.get("connected") == self.load.agents]
            first = {note["what"]: note["at"] - begun for note in reversed(notes)}
            if back and "placed" in first:
                return {**{stage: first[stage] for stage, _ in STAGES}, "back": back[0] - begun}
            if self._master is None or self._master.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"it does not come back: {(self.directory / 'master.log').read_text()[-3000:]}")
            time.sleep(0.1)

    def _notes(self, pid: int) -> list[dict[str, Any]]:
        if not self.notes_file.exists():
            return []
        lines = (json.loads(line) for line in self.notes_file.read_text().splitlines())
        return [note for note in lines if note["pid"] == pid]


def main(arguments: Sequence[str] = ()) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart")
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="default: both, one after the other")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--restarts", type=int, default=RESTARTS)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    for database in [given.database] if given.database else ["sqlite", "postgres"]:
        load = Load(agents=given.agents, jobs=given.jobs, task_s=TASK_S, database=database)
        rows += measure(load, given.restarts)
    return rows


def measure(load: Load, restarts: int) -> list[Row]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="resolute-restart-")))
        database: Mapping[str, object] = {"type": "sqlite"}
        if load.database == "postgres":
            server = stack.enter_context(postgres_server())
            database = server.db_config(server.new_database())
        cluster = RestartedCluster(load, directory, database)
        asyncio.run(fill(cluster.config_file, load.jobs))
        stack.callback(cluster.stop)
        cluster.start_master()
        cluster.start_clients()
        cluster.until_all_connected()
        cluster.until_all_run()
        cluster.restart()  # the first one compiles
        found: list[dict[str, float]] = []
        for _ in range(restarts):
            time.sleep(PAUSE_S)
            found.append(cluster.restart())
            print("  ".join(f"{name} {seconds:.2f} s" for name, seconds in found[-1].items()), flush=True)
    return [_row(load, found, stage, text) for stage, text in (*STAGES, ("back", "all agents are back"))]


def _row(load: Load, found: list[dict[str, float]], stage: str, text: str) -> Row:
    seconds = [each[stage] for each in found]
    judged = stage == "placed"
    return Row(
        name=f"{load.database}: {text}",
        subject=Spread.of(seconds, "s"),
        result=percentile(seconds, 99),
        unit="s",
        target=Target(at_most=TARGET_S) if judged else None,
        notes=f"p99 of {len(seconds)} restarts" + (f"; {load.agents} agents, {load.jobs} jobs" if judged else ""),
    )


if __name__ == "__main__":
    for row in main(sys.argv[1:]):
        print("  |  ".join(cell for cell in row.cells() if cell))
