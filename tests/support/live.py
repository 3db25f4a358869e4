"""A real local cluster: master process, local cloud, agents, tasks; and functions that kill any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import yaml

from resolute.client import Resolute
from resolute.client.authentication import authenticated_session
from resolute.client.sdk import Experiment
from resolute.clock import SystemClock
from resolute.wire.rest.metrics import MetricsReport
from resolute_provisioner.clouds.local.cloud import stop_all
from resolute_provisioner.clouds.local.files import MachineFiles, machines
from resolute_provisioner.clouds.records import Record, read_json
from support.event_log_checker import TrialRecord
from support.ports import free_port

T = TypeVar("T")

PASSWORD = "correct horse"
READY_S = 180.0

TERMINATED = "terminated"
"""Reasons of ordered ends of a machine of the local cloud."""


def until(what: str, read: Callable[[], T | None], *, within_s: float = READY_S, every_s: float = 0.1) -> T:
    """The first result that is neither None nor False. The time limit is generous: it only detects a hang."""
    end = time.monotonic() + within_s
    while True:
        answer = read()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {within_s:.0f} s")
        time.sleep(every_s)


class LiveCluster:
    """A cluster with one directory and one port. The master may be killed and restarted.

    The names of the programs are arguments of `-m`; a subclass may set others.
    """

    master_program: Sequence[str] = ("resolute_master",)
    agent_program = "resolute_agent"
    machine_program = "resolute_agent.machine"
    task_program = "resolute.testing.scripted_trial"

    def __init__(self, directory: Path, *, pool: Mapping[str, Any] | None = None, **config: Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.storage = directory / "checkpoints"
        self.event_log = self.storage / "event_log"
        """Directory for files of tasks. It is outside of `/tmp`, which is private for each task."""
        self.event_log.mkdir(parents=True)
        self.event_log.chmod(0o1777)  # If the agent is root, its tasks run as another user.
        self.config_file = directory / "master.yaml"
        provider = {"type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "3s"}
        self.config: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "cluster_name": "live",
            "cluster_state_dir": str(directory / "state"),
            "security": {"initial_user_password": PASSWORD},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(self.storage), "save_trial_latest": 1000},
            "heartbeat_interval": "500ms",
            "resource_pools": [
                {"pool_name": "default", "agent_reconnect_wait": "60s", "provider": provider, **(pool or {})}
            ],
            **config,
        }
        self.config_file.write_text(yaml.safe_dump(self.config))
        self.pool_root = directory / "state" / "pools" / "default"
        self.master: subprocess.Popen[bytes] | None = None
        self.environment = dict(os.environ)
        """Environment of the master."""
        self._client: Resolute | None = None

    # -- the master --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.spawn()
        until("the master serves", self.serves)

    def spawn(self) -> None:
        """Starts the master's process without waiting."""
        with (self.directory / "master.log").open("ab") as log:
            self.master = subprocess.Popen(
                [sys.executable, "-m", *self.master_program, "--config-file", str(self.config_file)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )

    def serves(self) -> bool:
        """Raises if the master has ended."""
        assert self.master is not None
        if self.master.poll() is not None:
            raise AssertionError(f"the master ended with {self.master.returncode}: {self.master_log()[-3000:]}")
        return self.answers()

    def answers(self) -> bool:
        """Whether a server answers at the master's address."""
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=2, verify=False).status_code == 200
        return False

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    def stop(self) -> None:
        """Ends all processes, in any state of the cluster."""
        if self._client is not None:
            self._client.close()
        if self.master is not None and self.master.poll() is None:
            self.master.terminate()
            try:
                self.master.wait(20)
            except subprocess.TimeoutExpired:
                self.master.kill()
                self.master.wait()
        for root in self.pool_roots():
            stop_all(root, clock=SystemClock())

    def master_log(self) -> str:
        return (self.directory / "master.log").read_text(errors="replace")

    # -- clients -----------------------------------------------------------------------------------------------

    @property
    def client(self) -> Resolute:
        if self._client is None:
            self._client = client_of(self.url, self.directory)
        return self._client

    def submit(self, hparams: Mapping[str, Any], **changes: Any) -> Experiment:
        """Submits a scripted trial; `changes` are merged into the configuration."""
        config = {
            "name": "scripted",
            "entrypoint": "python3 -m resolute.testing.scripted_trial",
            "searcher": {"name": "single", "metric": "loss", "max_length": 1000000},
            "hyperparameters": dict(hparams),
            "resources": {"slots_per_trial": 1},
            "max_restarts": 0,
            **changes,
        }
        return self.client.create_experiment(config)

    # -- processes of the cluster ------------------------------------------------------------------------------

    def machines(self) -> list[psutil.Process]:
        """The host processes of live machines."""
        return self._of_cluster(self.machine_program)

    def working_machines(self) -> list[psutil.Process]:
        """The machines with a running task."""
        at_work: set[int] = set()
        for task in self.tasks():
            with suppress(psutil.Error):
                at_work |= {parent.pid for parent in task.parents()}
        return [machine for machine in self.machines() if machine.pid in at_work]

    def agents(self) -> list[psutil.Process]:
        return self._of_cluster(self.agent_program)

    def tasks(self) -> list[psutil.Process]:
        """The training programs, not the shells and launchers around them."""
        return self._of_cluster(self.task_program)

    def lost_machines(self) -> frozenset[str]:
        """Machines whose end was not ordered, according to the cloud."""
        ends = {files.directory.name: read_json(files.gone) for files, _ in self.machines_on_file()}
        return frozenset(name for name, end in ends.items() if end is not None and end["reason"] != TERMINATED)

    def machines_on_file(self) -> list[tuple[MachineFiles, Record]]:
        """Every machine that the cloud has created, of all pools."""
        return [found for root in self.pool_roots() for found in machines(root)]

    def pool_roots(self) -> list[Path]:
        return sorted((self.directory / "state" / "pools").glob("*"))

    def _of_cluster(self, program: str = "") -> list[psutil.Process]:
        """All processes, or those of a program. Tests call this ten times per second, so it reads environments only if
        necessary."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                command = _command(process)
                if program and command[1:3] != ["-m", program]:
                    continue
                told = " ".join([*command, *process.environ().values()])
                if str(self.directory) in told and process.pid not in (os.getpid(), self.master and self.master.pid):
                    found.append(process)
        return found

    def left_over(self) -> list[str]:
        """Remaining processes of this cluster."""
        return [" ".join(_command(p)) for p in self._of_cluster() if p.status() != psutil.STATUS_ZOMBIE]


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def kill_pid(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        kill(psutil.Process(pid))


def gone(pid: int) -> bool:
    """Whether the process has ended, even if its exit code has not been collected."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def client_of(url: str, directory: Path, *, user: str = "determined") -> Resolute:
    """A client with a login; the token is stored in `directory`, not in the home directory."""
    kept = {"DET_DEBUG_CONFIG_PATH": str(directory / "logins")}
    return Resolute(session=authenticated_session(url, user=user, password=PASSWORD, environ=kept))


def record_of(experiment: Experiment, *, steps: int, lost: Collection[str] = (), spoken: bool = False) -> TrialRecord:
    """The only trial of an ended scripted experiment from the API, for the checker of event logs.

    `lost` contains lost machines (`LiveCluster.lost_machines`). With `spoken` its program prints each line of its event log
    (`event_log_checker.SAID`), so that the checker compares its log, too.
    """
    (trial,) = experiment.list_trials()
    trial.reload()
    counting = [r for r in trial.iter_metrics("training") if not r.archived]
    attempts = trial.list_allocations()
    lost_of_run = frozenset(lost)
    return TrialRecord(
        trial_id=trial.id,
        state=trial.state,
        steps=steps,
        reported={r.total_batches: r.trial_run_id for r in counting},
        values={r.total_batches: _scripted_step(r) for r in counting},
        checkpoints={c.uuid: int(c.metadata["steps_completed"]) for c in trial.list_checkpoints()},
        resumed={a.run_id: a.steps_at_start for a in attempts if a.run_id is not None and a.steps_at_start is not None},
        exits={a.run_id: a.exit_code for a in attempts if a.run_id is not None and a.end_time is not None},
        said=tuple(trial.iter_logs()) if spoken else None,
        repeated=frozenset(step for step, count in Counter(r.total_batches for r in counting).items() if count > 1),
        cut=frozenset(
            a.run_id for a in attempts if a.run_id is not None and not lost_of_run.isdisjoint(a.instance_ids)
        ),
    )


def _scripted_step(report: MetricsReport) -> object:
    return report.metrics.get("avg_metrics", report.metrics).get("scripted_step")


@contextmanager
def live_cluster(directory: Path, **settings: Any) -> Iterator[LiveCluster]:
    cluster = LiveCluster(directory, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
