"""Machines in namespaces: the boot script runs unmodified, with private network, processes and /var/lib, and with a metadata
service at 169.254.169.254. Needs root, `ip` and `unshare`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

POWER_OFF = ("systemctl", "shutdown", "poweroff")
"""Programs that would power off the computer of the tests."""

INIT = """\
mount --make-rprivate /
mount --bind "$1/lib" /var/lib
if [ -d /run/systemd ]; then mount -t tmpfs none /run/systemd; fi
"$1/user-data" >>"$1/console.log" 2>&1 &
while [ ! -e "$1/off" ]; do sleep 0.1; done
"""
"""The first process of a machine: when it ends, the kernel ends all others."""

SERVICE_S = 60.0
"""Time limit: on a busy computer Python starts slowly."""

HERE = Path(__file__).resolve().parents[1]


def can_boot() -> bool:
    """Whether this computer supports such machines."""
    if os.geteuid() != 0:
        return False
    name = f"rt-probe-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
        if made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            inside = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"]
            made = subprocess.run(inside, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
    return made


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """A bridge with addresses 10.x.y.0/24. Machines connect to this computer at `host`."""

    def __init__(self) -> None:
        pid = os.getpid()
        self._prefix = f"10.{64 + pid % 128}.{pid // 128 % 256}"
        self.device = f"rt{pid}"
        self.host = f"{self._prefix}.1"
        self._given = 1

    def _let_through(self, change: str) -> None:
        """Allows traffic between the machines: a Docker engine on this computer would block it."""
        if shutil.which("iptables") is not None:
            rule = ["-i", self.device, "-o", self.device, "-j", "ACCEPT"]
            subprocess.run(["iptables", "-w", change, "FORWARD", *rule], capture_output=True, check=False)

    def address(self) -> str:
        self._given += 1
        return f"{self._prefix}.{self._given}"

    @contextmanager
    def up(self) -> Iterator[Network]:
        run("ip", "link", "add", self.device, "type", "bridge")
        try:
            run("ip", "addr", "add", f"{self.host}/24", "dev", self.device)
            run("ip", "link", "set", self.device, "up")
            self._let_through("-I")
            yield self
        finally:
            self._let_through("-D")
            run("ip", "link", "del", self.device)


class BootedMachine:
    """One booted machine. `metadata` contains the values of its service by path; `tell` changes them."""

    def __init__(
        self, directory: Path, network: Network, user_data: bytes, metadata: Mapping[str, str], service: str
    ) -> None:
        """`service` is the module that serves the metadata: see `support.imds_main`."""
        self.directory = directory
        self._network = network
        self._name = f"{network.device}-{network.address().rpartition('.')[2]}"
        self._address = f"{network.host.rpartition('.')[0]}.{self._name.rpartition('-')[2]}"
        for made in (directory / "lib", directory / "shims"):
            made.mkdir(parents=True)
        script = directory / "user-data"
        script.write_bytes(user_data)
        script.chmod(0o700)
        for name in POWER_OFF:
            shim = directory / "shims" / name
            shim.write_text(f"#!/bin/sh\ntouch '{directory}/off'\n")
            shim.chmod(0o755)
        self._metadata: dict[str, str] = dict(metadata)
        self.tell({})
        self._service: subprocess.Popen[bytes] | None = None
        self._machine: subprocess.Popen[bytes] | None = None
        try:
            self._plug_in()
            self._service = self._serve(service)
            self._wait_until_it_serves(self._service)
            self._machine = self._switch_on()
        except BaseException:
            self.remove()
            raise

    @property
    def _values(self) -> Path:
        return self.directory / "metadata.json"

    def tell(self, metadata: Mapping[str, str]) -> None:
        """Adds values to its metadata service."""
        self._metadata |= metadata
        partial = self._values.with_suffix(".partial")
        partial.write_text(json.dumps(self._metadata))
        partial.replace(self._values)

    @property
    def address(self) -> str:
        """Runs a command in the network of the machines."""
        return self._address

    @property
    def runs(self) -> bool:
        return self._machine is not None and self._machine.poll() is None

    @property
    def powered_itself_off(self) -> bool:
        return not self.runs and (self.directory / "off").exists()

    def log(self) -> str:
        """Output of its boot and its agent."""
        files = [self.directory / "console.log", *sorted((self.directory / "lib" / "resolute").glob("*.log"))]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')}" for file in files if file.exists())

    def cut(self) -> None:
        """Powers it off."""
        if self._machine is not None:
            self._machine.kill()
            self._machine.wait()

    def remove(self) -> None:
        """Removes everything except its directory."""
        self.cut()
        if self._service is not None:
            self._service.kill()
            self._service.wait()
        run("ip", "netns", "del", self._name)

    def _inside(self) -> list[str]:
        return ["ip", "netns", "exec", self._name]

    def _plug_in(self) -> None:
        run("ip", "netns", "add", self._name)
        run("ip", "link", "add", f"v{self._name}", "type", "veth", "peer", "name", "eth0", "netns", self._name)
        run("ip", "link", "set", f"v{self._name}", "master", self._network.device, "up")
        run(*self._inside(), "ip", "link", "set", "lo", "up")
        run(*self._inside(), "ip", "addr", "add", "169.254.169.254/32", "dev", "lo")
        run(*self._inside(), "ip", "addr", "add", f"{self._address}/24", "dev", "eth0")
        run(*self._inside(), "ip", "link", "set", "eth0", "up")

    def _serve(self, module: str) -> subprocess.Popen[bytes]:
        command = [*self._inside(), sys.executable, "-m", module, str(self._values)]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(HERE)}, stdin=subprocess.DEVNULL)

    def _wait_until_it_serves(self, service: subprocess.Popen[bytes]) -> None:
        """Waits for the metadata service, which on a real machine exists before the boot."""
        asked = [
            *self._inside(),
            "curl",
            "--silent",
            "--max-time",
            "5",
            "--output",
            "/dev/null",
            "http://169.254.169.254/",
        ]
        end = time.monotonic() + SERVICE_S
        while subprocess.run(asked, check=False).returncode != 0:
            assert service.poll() is None and time.monotonic() < end, "the metadata service does not answer"
            time.sleep(0.05)

    def _switch_on(self) -> subprocess.Popen[bytes]:
        """With the variables of a machine that boots, and the interpreter of these tests first on its path."""
        path = ":".join([str(self.directory / "shims"), str(Path(sys.executable).parent), os.defpath])
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        init = ["/bin/sh", "-c", INIT, "init", str(self.directory)]
        clean = ["env", "-i", f"PATH={path}", "HOME=/root", "LANG=C.UTF-8"]
        return subprocess.Popen(
            [*self._inside(), *clean, *own, *init], stdin=subprocess.DEVNULL, start_new_session=True
        )
