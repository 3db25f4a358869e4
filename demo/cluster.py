"""Starts and ends the demonstration's cluster, and runs a user's commands."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from demo import scenario
from demo.folder import Folder
from resolute.client.authentication import authenticated_session
from resolute.client.sdk import Resolute
from resolute.errors import ResoluteError, Unavailable
from resolute_cli.local_cluster import RunningCluster, cluster_down, cluster_up
from resolute_cli.local_plan import ClusterPlan

END_S = 10.0


class CommandFailed(ResoluteError):
    """A command of the demonstration failed; the text contains its output."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(folder: Folder, bucket: Mapping[str, object] | None = None) -> tuple[RunningCluster, str]:
    """The running cluster and the password of its first users. The master's log is in the folder.

    `bucket` stores checkpoints in place of a directory.
    """
    port, password = free_port(), secrets.token_urlsafe(12)
    scenario.write_master_configuration(folder, port=port, password=password, bucket=bucket)
    plan = ClusterPlan(name="demo", directory=folder.root, port=port, own_config=folder.master_config)
    return cluster_up(plan), password


def end(folder: Folder) -> None:
    """Ends master and machines, and returns when no process is left. Raises `Unavailable` if a process does not end."""
    cluster_down(folder.root)


def user_environment(folder: Folder, url: str) -> dict[str, str]:
    """Environment of a user of this cluster; the login is stored in the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    return {**kept, "DET_MASTER": url, "DET_DEBUG_CONFIG_PATH": str(folder.login)}


def det(
    folder: Folder, url: str, words: list[str], *, cwd: Path | None = None, extra: Mapping[str, str] | None = None
) -> str:
    """Output of `det <words>`. Raises `CommandFailed`."""
    answer = subprocess.run(
        [sys.executable, "-m", "resolute_cli.main", *words],
        env={**user_environment(folder, url), **(extra or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise CommandFailed(f"det {' '.join(words[:2])} failed: {(answer.stderr or answer.stdout).strip()}")
    return answer.stdout


def log_in(folder: Folder, url: str, password: str) -> None:
    det(folder, url, ["user", "login", scenario.USER], extra={"DET_USER": scenario.USER, "DET_PASS": password})


def submit(folder: Folder, url: str) -> int:
    """The id of the new experiment."""
    answer = json.loads(det(folder, url, [*scenario.submission(), "--json"], cwd=scenario.EXAMPLE))
    return int(answer["id"])


def client(folder: Folder, url: str) -> Resolute:
    """A client with the login that `log_in` stored."""
    return Resolute(session=authenticated_session(url, environ=user_environment(folder, url)))


def interrupt(folder: Folder, instance_id: str, notice_s: float | None) -> None:
    """Interrupts a machine, with or without a notice."""
    command = [sys.executable, "-m", "resolute_provisioner.clouds.local", "interrupt", str(folder.pool), instance_id]
    if notice_s is not None:
        command += ["--notice", f"{notice_s:g}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise CommandFailed(f"the machine {instance_id} could not be interrupted: {answer.stderr.strip()}")


class Companion:
    """A process beside the cluster: the reference, or the observer of `verify`. It ends with the demonstration."""

    def __init__(self, name: str, words: list[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            # A separate session: Ctrl-C signals the demonstration only, which then ends its companions.
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                cwd=Path(__file__).resolve().parent.parent,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raises `Unavailable` if it has failed."""
        if self.code not in (None, 0):
            words = self._log.read_text(errors="replace").strip().splitlines()[-5:]
            raise Unavailable(f"the {self.name} failed with code {self.code}: {' / '.join(words)}; see {self._log}")

    def wait(self, within_s: float) -> None:
        """Waits for its end. Raises `Unavailable` if it fails or takes longer."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"the {self.name} has not ended within {within_s:.0f} s; see {self._log}") from None
        self.check()

    def end(self) -> None:
        if self.code is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
