"""A real systemd as the first process of new namespaces, which runs the unit files of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = Path("/lib/systemd/systemd")

BOOT = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec {program} --system --unit=default.target --log-target=console --log-level=info
"""

TARGET = """
[Unit]
Description=the services under test
DefaultDependencies=no
Wants={services}
"""


def systemd_runs() -> bool:
    """Whether systemd can be started as the first process of new namespaces."""
    if os.geteuid() != 0 or not PROGRAM.exists() or shutil.which("unshare") is None:
        return False
    command = [*_unshare(), "sh", "-c", "mount -t cgroup2 cgroup2 /sys/fs/cgroup"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unshare() -> list[str]:
    apart = ["--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--mount", "--cgroup", "--uts", "--ipc"]
    return ["unshare", *apart]


class Systemd:
    """One booted systemd; its processes are visible from outside."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def processes(self, module: str) -> list[psutil.Process]:
        """Processes of `python -m module`, oldest first."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if process.cmdline()[1:3] == ["-m", module]:
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda one: one.create_time())

    def log(self) -> str:
        """Output of the services."""
        return self._log.read_text(errors="replace")


@contextmanager
def booted(directory: Path, drop_ins: dict[str, str]) -> Iterator[Systemd]:
    """The unit files of the repository, each with a drop-in of the test's changes, such as paths."""
    units = directory / "units"
    for service, text in drop_ins.items():
        (units / f"{service}.d").mkdir(parents=True)
        shutil.copy(UNITS / service, units / service)
        said = f"StandardOutput=append:{directory}/services.log\nStandardError=inherit\n"
        (units / f"{service}.d" / "test.conf").write_text(text + said)
    (units / "default.target").write_text(TARGET.format(services=" ".join(drop_ins)))
    environment = {
        **os.environ,
        "container": "test",
        "SYSTEMD_UNIT_PATH": str(units),
    }
    log = directory / "services.log"
    command = [*_unshare(), "sh", "-c", BOOT.format(program=PROGRAM)]
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield Systemd(process, log)
    finally:
        process.kill()  # The first process ends with it, and then all processes in its namespace.
        process.wait()


def python_service(arguments: str, *, extra: str = "") -> str:
    """A drop-in that runs this interpreter and allows paths in home directories and /tmp, where the tests' files are."""
    return (
        "[Unit]\nDefaultDependencies=no\n[Service]\n"
        f"ExecStart=\nExecStart={sys.executable} -m {arguments}\n"
        f"User=root\nGroup=root\nProtectHome=no\nPrivateTmp=no\n{extra}"
    )
