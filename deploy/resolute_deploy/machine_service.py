"""The master as a service of its machine: a unit of systemd, or a child process on a machine without systemd."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from resolute_deploy.cloud import LogStream
from resolute_deploy.shipped import shipped

OpenLog = Callable[[str], LogStream]
"""By its name."""

UNIT = "resolute-master.service"
LAST_LINES = 5


class MasterService(Protocol):
    """`owner` is the account that runs the master; None is the account of this program."""

    owner: str | None
    state_directory: Path

    def start(self, environment: Mapping[str, str], log: str | None) -> None:
        """Starts the master with the current release and configuration, or restarts it."""
        ...

    def hand_over(self) -> None:
        """Called before another release of this program takes over."""
        ...

    def serves(self) -> bool:
        """Whether the master reports that it is ready."""
        ...

    def last_words(self) -> str:
        """The end of its log."""
        ...


def service_of_this_machine(directory: Path, log_stream: OpenLog) -> MasterService:
    if Path("/run/systemd/system").is_dir() and shutil.which("systemctl"):
        return SystemdService(directory, log_stream)
    return ProcessService(directory, log_stream)


def is_ready(directory: Path) -> bool:
    """Calls the master on this machine without a check of its host name: the certificate contains other addresses."""
    try:
        port = json.loads((directory / "master.yaml").read_text())["port"]
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/ready", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


class SystemdService:
    """Runs the master as the user `resolute`, with the unit file of this repository."""

    owner: str | None = "resolute"
    state_directory = Path("/var/lib/resolute")

    def __init__(self, directory: Path, log_stream: OpenLog) -> None:
        self._directory = directory
        self._log_stream = log_stream
        self._logs: LogShipper | None = None
        if subprocess.run(["id", "resolute"], capture_output=True, check=False).returncode:
            subprocess.run(["useradd", "--system", "--home-dir", str(self.state_directory), "resolute"], check=True)
        # The account can read its secrets and the release, and nothing else in the directory.
        directory.chmod(0o711)

    def start(self, environment: Mapping[str, str], log: str | None) -> None:
        variables = self._directory / "master.env"
        variables.touch(mode=0o600)
        variables.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
        units = Path("/etc/systemd/system")
        (units / UNIT).write_text((shipped("systemd") / UNIT).read_text())
        own = units / f"{UNIT}.d"
        own.mkdir(exist_ok=True)
        (own / "deploy.conf").write_text(
            "[Service]\nExecStart=\n"
            f"ExecStart={self._directory}/current/bin/python -m resolute_master --config-file {self._directory}/master.yaml\n"
            f"EnvironmentFile={variables}\n"
        )
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        subprocess.run(["systemctl", "enable", "--quiet", UNIT], check=True)
        subprocess.run(["systemctl", "restart", UNIT], check=True)
        if log and self._logs is None:
            self._logs = LogShipper(["journalctl", "-u", UNIT, "-o", "cat", "-f", "-n", "0"], self._log_stream(log))

    def hand_over(self) -> None:
        """Does nothing: the unit runs without this program."""

    def serves(self) -> bool:
        return is_ready(self._directory)

    def last_words(self) -> str:
        command = ["journalctl", "-u", UNIT, "-o", "cat", "-n", str(LAST_LINES)]
        return " / ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())


class ProcessService:
    """A child process that is restarted when it ends, as in a container."""

    owner: str | None = None
    state_directory = Path("/var/lib/resolute")

    def __init__(self, directory: Path, log_stream: OpenLog) -> None:
        self._directory = directory
        self._log_stream = log_stream
        self._log = directory / "master.log"
        self._wanted: dict[str, str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._logs: LogShipper | None = None
        threading.Thread(target=self._keep, daemon=True).start()

    def start(self, environment: Mapping[str, str], log: str | None) -> None:
        self._wanted = dict(environment)
        if self._child is not None:
            self._child.terminate()
        if log and self._logs is None:
            self._logs = LogShipper(["tail", "-n", "0", "-F", str(self._log)], self._log_stream(log))

    def hand_over(self) -> None:
        self._wanted = None
        if self._child is not None:
            self._child.terminate()
            self._child.wait()

    def _keep(self) -> None:
        while True:
            if self._wanted is None:
                time.sleep(0.2)
                continue
            self.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            python = self._directory / "current" / "bin" / "python"
            command = [str(python), "-m", "resolute_master", "--config-file", str(self._directory / "master.yaml")]
            with self._log.open("ab") as log:
                own = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", **self._wanted}
                self._child = subprocess.Popen(command, env=own, stdout=log, stderr=log)
            self._child.wait()
            time.sleep(1.0)

    def serves(self) -> bool:
        return is_ready(self._directory)

    def last_words(self) -> str:
        return (
            " / ".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]) if self._log.exists() else ""
        )


class LogShipper:
    """Sends the lines of a command to a log service, a batch a second."""

    def __init__(self, command: list[str], stream: LogStream) -> None:
        self._stream = stream
        self._follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
        self._waiting: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._send, daemon=True).start()

    def _read(self) -> None:
        assert self._follower.stdout is not None
        for line in self._follower.stdout:
            with self._lock:
                self._waiting.append((time.time_ns() // 1_000_000, line.rstrip("\n")))

    def _send(self) -> None:
        while True:
            time.sleep(1.0)
            with self._lock:
                batch, self._waiting = self._waiting[:1000], self._waiting[1000:]
            if batch and not self._stream.send(batch):
                with self._lock:
                    self._waiting = (batch + self._waiting)[:100_000]
