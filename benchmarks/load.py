"""One master under load: 1,000 agents over real links, 10,000 live jobs, and tasks that start, report, end and are replaced.

    python -m benchmarks.load [--agents 1000] [--slots 8] [--jobs 10000] [--task-s 400] [--report-s 60] [--seconds 60]
                              [--database sqlite|postgres] [--seed 1] [--keep DIRECTORY]

The phases: all agents join a master that starts with the jobs; steady load; the master is killed and restarted; all agents vanish
at once and are replaced; a burst of submissions. For each phase the benchmark reports the duration of the engine's cycles, the
stalls of the event loop, and the memory of the master. The master is one process; another process runs the agents, tasks and users.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.cluster import disk
from benchmarks.load_clients import Clients, start_arguments
from benchmarks.load_phase import STALL_S, Phase
from benchmarks.report import Row, Spread, Target, percentile
from resolute.clock import SystemClock
from resolute.config import experiment_defaults, load_master_config, load_yaml, parse_experiment
from resolute.ids import SystemIds
from resolute.wire.rest.passwords import hash_password
from resolute_master import bootstrap
from resolute_master.api.auth.authenticate import Passwords
from resolute_master.app import open_store
from resolute_master.domain.commands import CreateExperiment
from resolute_master.domain.ids import UserId
from resolute_master.domain.user import User
from resolute_master.engine.engine import Engine
from resolute_master.pools.policies import pool_policies
from support.ports import free_port
from support.postgres import find_programs, postgres_server

PASSWORD = "correct horse"
READY_S = 300.0
RECONNECT_WAIT_S = 60
CYCLE_TARGET_MS = 50.0
MEMORY_TARGET_MIB = 1024.0
IN_FLIGHT = 200
BURST = 1000

EXPERIMENT = """
name: load
entrypoint: python3 train.py --with-some-option
hyperparameters: {learning_rate: 0.001, layers: 12, width: 768, dropout: 0.1, optimizer: adamw}
searcher: {name: single, metric: loss, max_length: {batches: 100000}}
resources: {slots_per_trial: 1}
max_restarts: 5
checkpoint_storage: {type: shared_fs, host_path: /var/tmp/resolute-load}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load on the master."""

    agents: int = 1000
    slots: int = 8
    jobs: int = 10_000
    task_s: float = 400.0
    report_s: float = 60.0
    seconds: float = 60.0
    polls: bool = True
    database: str = "sqlite"
    seed: int = 1

    def text(self) -> str:
        running = min(self.jobs, self.agents * self.slots)
        return (
            f"{self.agents} agents of {self.slots} slots, {self.jobs} jobs, {running} of them running; each task lasts "
            f"{self.task_s:.0f} s on average ({running / self.task_s:.0f} ends and starts a second), reports every "
            f"{self.report_s:.0f} s ({running / self.report_s:.0f} a second) with a line of output each"
            f"{', and holds a poll for preemption' if self.polls else ''}; each second one list of everything is read; "
            f"{self.database}"
        )


STALLS = "resolute_event_loop_stalls_total"


class Cluster:
    """A directory with a master and its clients. Both may be killed and restarted."""

    def __init__(self, load: Load, directory: Path, database: Mapping[str, object]) -> None:
        self.load = load
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config_file = directory / "master.yaml"
        self.meter_file = directory / "meter.jsonl"
        self.status_file = directory / "clients.json"
        self.starts = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._clients: subprocess.Popen[bytes] | None = None
        config = {
            "host": "127.0.0.1",
            "port": self.port,
            "cluster_state_dir": str(directory / "state"),
            "db": dict(database),
            "security": {"initial_user_password": PASSWORD},
            "resource_pools": [{"pool_name": "default", "agent_reconnect_wait": f"{RECONNECT_WAIT_S}s"}],
        }
        self.config_file.write_text(yaml.safe_dump(config))

    # -- processes ---------------------------------------------------------------------------------------------

    def start_master(self) -> float:
        """Starts the master, and returns the seconds until it serves."""
        begun = time.monotonic()
        with (self.directory / "master.log").open("ab") as log:
            command = [sys.executable, "-m", "benchmarks.load_master", str(self.config_file), str(self.meter_file)]
            self._master = subprocess.Popen(command, stdout=log, stderr=log)
        _until("the master serves", self._serves)
        return time.monotonic() - begun

    def _serves(self) -> bool:
        assert self._master is not None
        if self._master.poll() is not None:
            raise SystemExit(f"the master ended: {(self.directory / 'master.log').read_text()[-3000:]}")
        try:
            return httpx.get(f"{self.url}/health", timeout=10, verify=False).status_code == 200
        except httpx.TransportError:
            return False

    def kill_master(self) -> None:
        _kill(self._master)

    def start_clients(self) -> None:
        self.starts += 1
        self.status_file.unlink(missing_ok=True)
        clients = Clients(
            url=self.url,
            token=self._token(),
            join_token=(self.directory / "state" / "join-token").read_text().strip(),
            status_file=str(self.status_file),
            agents=self.load.agents,
            slots=self.load.slots,
            task_s=self.load.task_s,
            report_s=self.load.report_s,
            polls=self.load.polls,
            seed=self.load.seed + self.starts,
            experiment={"config": EXPERIMENT, "activate": True},
        )
        with (self.directory / "clients.log").open("ab") as log:
            self._clients = subprocess.Popen(start_arguments(clients), stdout=log, stderr=log)

    def kill_clients(self) -> None:
        _kill(self._clients)

    def stop(self) -> None:
        _kill(self._clients)
        _kill(self._master)

    # -- measurements ------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Counts of the clients; empty before their first report."""
        if self._clients is not None and self._clients.poll() is not None:
            raise SystemExit(f"the clients ended: {(self.directory / 'clients.log').read_text()[-3000:]}")
        try:
            status: dict[str, Any] = json.loads(self.status_file.read_text())
        except FileNotFoundError:
            return {}
        return status

    def until_all_connected(self) -> float:
        begun = time.monotonic()

        def all_are() -> bool:
            status = self.status()
            return bool(status.get("at", 0.0) > begun and status["connected"] == self.load.agents)

        _until("all agents are connected", all_are)
        return time.monotonic() - begun

    def until_all_run(self) -> float:
        """Waits until nearly every slot has a task, because tasks end meanwhile."""
        begun = time.monotonic()
        wanted = 0.97 * min(self.load.jobs, self.load.agents * self.load.slots)
        _until("the slots are full", lambda: self.status().get("tasks", 0) >= wanted)
        return time.monotonic() - begun

    def exported(self) -> dict[str, float]:
        """The master's exported metrics without labels; empty while it is down."""
        try:
            headers = {"Authorization": f"Bearer {self._token()}"}
            text = httpx.get(f"{self.url}/metrics", headers=headers, timeout=60).raise_for_status().text
        except httpx.HTTPError:
            return {}
        return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}

    def meter(self, since: float, until: float) -> list[dict[str, Any]]:
        time.sleep(1.0)  # the meter writes a few times a second
        lines = (json.loads(line) for line in self.meter_file.read_text().splitlines())
        return [line for line in lines if since <= line["at"] <= until]

    def _token(self) -> str:
        body = {"username": "admin", "password": hash_password(PASSWORD), "isHashed": True}
        answer = httpx.post(f"{self.url}/api/v1/auth/login", json=body, timeout=60)
        return str(answer.raise_for_status().json()["token"])


# -------------------------------------------------------------------------------------------------------------- jobs


async def fill(config_file: Path, jobs: int, text: str = EXPERIMENT) -> float:
    """Stores active experiments with the engine's commands, as the API does, and returns the seconds. `text` is their
    configuration."""
    config = load_master_config(config_file, {}, {})
    clock, ids = SystemClock(), SystemIds()
    store = await open_store(config)
    engine = Engine(store=store, clock=clock, ids=ids, pools=pool_policies(config), version="bench")
    await engine.start()
    running = asyncio.create_task(engine.run())
    await bootstrap.first_users(engine, config, Path(config.cluster_state_dir), Passwords().hash)
    owner = next(user.id for user in engine.state.all(User) if user.username == "determined")
    raw = load_yaml(text, what="the experiment")
    parsed = parse_experiment(raw, defaults=experiment_defaults(config, raw, ids=ids, clock=clock)).to_json()
    parsed["resources"] = {**parsed["resources"], "resource_pool": "default"}
    permits = asyncio.Semaphore(IN_FLIGHT)
    begun = time.monotonic()

    async def submit(seed: int) -> None:
        async with permits:
            # Each has its own copy of the configuration, as after a request.
            await engine.submit(_creation(owner, json.loads(json.dumps(parsed)), seed))

    await asyncio.gather(*(submit(seed) for seed in range(jobs)))
    took = time.monotonic() - begun
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
    return took


def _creation(owner: UserId, config: dict[str, Any], seed: int) -> CreateExperiment:
    resources = config["resources"]
    return CreateExperiment(
        owner=owner,
        config=config,
        original_config=EXPERIMENT,
        context_hash="",
        pool=resources["resource_pool"],
        priority=int(resources["priority"]),
        weight=float(resources["weight"]),
        max_slots=None,
        seed=seed,
        activate=True,
    )


# ----------------------------------------------------------------------------------------------------------- phases


class Campaign:
    """Runs the phases in turn."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.phases: dict[str, Phase] = {}

    def phase(self, name: str, work: Callable[[], str]) -> None:
        log = self._cluster.directory / "master.log"
        before = self._cluster.exported().get(STALLS, 0.0)
        begun, size = time.monotonic(), log.stat().st_size if log.exists() else 0
        said = work()
        ended, text = time.monotonic(), log.read_text()[size:]
        after = self._cluster.exported().get(STALLS, 0.0)
        stalls = int(after - before if after >= before else after)  # The counter starts at zero with each process.
        found = Phase.of(name, self._cluster.meter(begun, ended), said, stalls, text)
        self.phases[name] = found
        print(f"{found.text()}\n  {said}\n", flush=True)

    def run(self, wanted: set[str]) -> None:
        cluster = self._cluster
        for name, work in (
            ("join", self._join),
            ("steady", self._steady),
            ("restart", self._restart),
            ("vanish", self._vanish),
            ("burst", self._burst),
        ):
            if name == "join" or name in wanted:
                self.phase(name, work)
        print(json.dumps(cluster.status()))

    def _join(self) -> str:
        cluster = self._cluster
        served = cluster.start_master()
        cluster.start_clients()
        connected, run = cluster.until_all_connected(), cluster.until_all_run()
        return f"master serves after {served:.1f} s, agents connected {connected:.1f} s later, slots full {run:.1f} s later"

    def _steady(self) -> str:
        before = self._cluster.status()
        time.sleep(self._cluster.load.seconds)
        after, seconds = self._cluster.status(), self._cluster.load.seconds
        rates = {
            key: (after.get(key, 0) - before.get(key, 0)) / seconds
            for key in ("ended", "submitted", "reports", "looks")
        }
        return ", ".join(f"{rate:.1f} {key}/s" for key, rate in rates.items())

    def _restart(self) -> str:
        self._cluster.kill_master()
        time.sleep(2.0)
        served = self._cluster.start_master()
        connected = self._cluster.until_all_connected()
        time.sleep(20.0)
        return f"serves after {served:.1f} s, all agents connected {connected:.1f} s later"

    def _vanish(self) -> str:
        cluster = self._cluster
        cluster.kill_clients()
        time.sleep(RECONNECT_WAIT_S + 15.0)
        cluster.start_clients()
        connected, run = cluster.until_all_connected(), cluster.until_all_run()
        return f"new agents connected after {connected:.1f} s, slots full {run:.1f} s later"

    def _burst(self) -> str:
        asked = asyncio.run(_submit_burst(self._cluster))
        return f"{BURST} submissions from 32 users at once took {asked:.1f} s"


async def _submit_burst(cluster: Cluster) -> float:
    headers = {"Authorization": f"Bearer {cluster._token()}"}
    permits = asyncio.Semaphore(32)
    body = {"config": EXPERIMENT, "activate": True}
    async with httpx.AsyncClient(base_url=cluster.url, headers=headers, timeout=120) as client:

        async def submit() -> None:
            async with permits:
                (await client.post("/api/v1/experiments", json=body)).raise_for_status()

        begun = time.monotonic()
        await asyncio.gather(*(submit() for _ in range(BURST)))
        return time.monotonic() - begun


def measure(load: Load, directory: Path, wanted: set[str]) -> dict[str, Phase]:
    print(load.text(), flush=True)
    with ExitStack() as stack:
        database: Mapping[str, object] = {"type": "sqlite"}
        if load.database == "postgres":
            server = stack.enter_context(postgres_server(parent=disk()))
            database = server.db_config(server.new_database())
        cluster = Cluster(load, directory, database)
        stack.callback(cluster.stop)
        took = asyncio.run(fill(cluster.config_file, load.jobs))
        print(f"{load.jobs} experiments stored in {took:.1f} s\n", flush=True)
        campaign = Campaign(cluster)
        campaign.run(wanted)
    return campaign.phases


def rows(load: Load, phases: dict[str, Phase]) -> list[Row]:
    """Rows of the steady phase with targets; of the other phases the longest stall and the slowest cycles."""
    steady = phases["steady"]
    memory = max(max(phase.memory_mib) for phase in phases.values())
    found = [
        Row(
            name="cycle of the engine, p99",
            subject=Spread.of(steady.cycles_ms, "ms"),
            result=percentile(steady.cycles_ms, 99),
            unit="ms",
            target=Target(at_most=CYCLE_TARGET_MS),
            notes=f"{len(steady.cycles_ms)} cycles, {steady.commands / steady.seconds:.0f} commands a second",
        ),
        Row(
            name="of a cycle, waiting for the database, p99",
            subject=Spread.of(steady.commits_ms, "ms"),
            result=percentile(steady.commits_ms, 99),
            unit="ms",
        ),
        Row(
            name="of a cycle, the longest part without a yield to the event loop, p99",
            subject=Spread.of(steady.busy_ms, "ms"),
            result=percentile(steady.busy_ms, 99),
            unit="ms",
        ),
        *_stalls(steady),
        Row(
            name="memory of the master",
            subject=Spread.of(steady.memory_mib, "MiB"),
            result=memory,
            unit="MiB",
            target=Target(at_most=MEMORY_TARGET_MIB),
            notes="the most of all phases",
        ),
        Row(name="processor of the master", subject=Spread.one(100 * steady.cpu, "% of a core"), notes=load.text()),
    ]
    others = (phase for name, phase in phases.items() if name != "steady")
    return found + [_beside(phase) for phase in others]


def _stalls(steady: Phase) -> list[Row]:
    """The longest stall of all, of those in which the loop's thread had a processor, and of those in which the master computed."""
    longest = 1e3 * max((stall.late_s for stall in steady.stalls), default=0.0)
    ours = [1e3 * (stall.late_s - stall.waited_s) for stall in steady.stalls if not stall.starved]
    computed = [1e3 * stall.computed_s for stall in steady.stalls if stall.computed]
    return [
        _at_most(
            "longest stall of the event loop",
            longest,
            f"{steady.exported_stalls} exported by the master in {steady.seconds:.0f} s",
        ),
        _at_most(
            "longest stall, without the wait of the loop's thread for a processor",
            max(ours, default=0.0),
            f"{len(ours)} of {len(steady.stalls)} stalls; with a processor for it the others would have been none",
        ),
        _at_most(
            "longest stall that the master itself computed",
            max(computed, default=0.0),
            f"{len(computed)} of {len(steady.stalls)} stalls; in the others no thread of the master had a processor",
        ),
    ]


def _at_most(name: str, longest_ms: float, notes: str) -> Row:
    """The longest of some stalls, compared with the limit of a stall."""
    target = Target(at_most=1e3 * STALL_S)
    return Row(
        name=name, subject=Spread.one(longest_ms, "ms"), result=longest_ms, unit="ms", target=target, notes=notes
    )


def _beside(phase: Phase) -> Row:
    worst = 1e3 * max((stall.late_s for stall in phase.stalls), default=0.0)
    return Row(
        name=f"{phase.name}: cycle",
        subject=Spread.of(phase.cycles_ms, "ms"),
        result=percentile(phase.cycles_ms, 99),
        unit="ms at p99",
        notes=f"{phase.said}; longest stall {worst:.0f} ms",
    )


def main() -> list[Row]:
    load = Load(database="postgres" if find_programs() is not None else "sqlite")
    with tempfile.TemporaryDirectory(prefix="resolute-load-", dir=disk()) as directory:
        return rows(load, measure(load, Path(directory), {"steady", "restart", "vanish", "burst"}))


def _until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {READY_S:.0f} s")
        time.sleep(0.05)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def _from_command_line() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load")
    for name, value in asdict(Load()).items():
        if isinstance(value, bool):
            parser.add_argument(f"--no-{name}", dest=name, action="store_false")
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--phases", default="steady,restart,vanish,burst")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and database, which stays")
    given = vars(parser.parse_args())
    phases, keep = set(given.pop("phases").split(",")), given.pop("keep")
    directory = keep or Path(tempfile.mkdtemp(prefix="resolute-load-", dir=disk()))
    directory.mkdir(exist_ok=True, parents=True)
    try:
        measure(Load(**given), directory, phases)
    finally:
        if keep is None:
            shutil.rmtree(directory)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    _from_command_line()
