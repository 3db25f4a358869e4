"""Running a vendor's tool: with a limit that also holds for a driver that hangs, and with words for what went wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from resolute.errors import ResoluteError

TOOL_TIMEOUT_S = 60.0
"""Without the persistence daemon a machine of eight GPUs takes up to half a minute to wake its driver."""

KILLED_S = 2.0
"""Time for a killed tool to end; one that hangs inside the driver never does, and is abandoned."""

PCI_DEVICES = Path("/sys/bus/pci/devices")
_ACCELERATORS = {("0x10de", "0x0302"): "NVIDIA", ("0x1002", "0x1200"): "AMD"}
"""Vendor and class (3D controller, processing accelerator) of what is in a machine for nothing but computing."""

_REPAIRS = (
    (
        "version mismatch",
        "the driver was upgraded under a running kernel: reboot the machine, or unload and load the nvidia modules again",
    ),
    ("communicate with the nvidia driver", "load the kernel module (modprobe nvidia), or install the driver again"),
    ("driver not loaded", "load the kernel module (modprobe nvidia), or install the driver again"),
    ("insufficient permissions", "run the agent as a user with access to /dev/nvidia*"),
    ("requires restart", "reset the GPU (nvidia-smi --gpu-reset), or reboot the machine"),
    ("requires reset", "reset the GPU (nvidia-smi --gpu-reset), or reboot the machine"),
    ("is lost", "reboot the machine; the kernel's log (dmesg, lines with Xid) contains the reason"),
    ("unknown error", "reset the GPU or reboot the machine; the kernel's log (dmesg, lines with Xid) has details"),
    ("amdgpu", "load the kernel module (modprobe amdgpu), or install the driver again"),
)


class DetectionFailed(ResoluteError):
    """The machine has devices that cannot be listed; the text has the failure and a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The output of a tool, and its exit code."""

    command: str
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaint, shortened: vendors write it to either stream."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:500]

    def failed(self) -> DetectionFailed:
        return DetectionFailed(f"{self.command} ended with code {self.code}: {self.said}; {repair(self.said)}")


def repair(said: str) -> str:
    """What to do about a vendor's error text."""
    lowered = said.lower()
    for sign, advice in _REPAIRS:
        if sign in lowered:
            return advice
    return "repair the driver, or set slot_type to cpu"


def find(name: str, search_path: str | None) -> str:
    """The path of a tool, empty when it is not there. `None` searches the process's own PATH."""
    return shutil.which(name, path=search_path) or ""


def ask(*command: str, limit_s: float = TOOL_TIMEOUT_S) -> Answer:
    """Run a tool to its end. Raises `DetectionFailed` when it cannot be started or does not answer in time."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise DetectionFailed(f"{command[0]} cannot be run: {error}") from error
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _abandon(process)
        raise DetectionFailed(
            f"{' '.join(command)} has not answered in {limit_s:g} s: the driver hangs; look for Xid lines in the "
            "kernel's log (dmesg), and reboot the machine"
        ) from None
    return Answer(
        command=os.path.basename(command[0]),
        code=process.returncode,
        out=out.decode(errors="replace"),
        err=err.decode(errors="replace"),
    )


def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Kill it with all that it started, and do not wait for what no signal reaches."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.communicate(timeout=KILLED_S)
    except subprocess.TimeoutExpired:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def accelerators_on_the_bus(devices: Path = PCI_DEVICES) -> tuple[str, ...]:
    """GPUs for computing that the kernel sees, with or without a driver: `NVIDIA at 0000:3b:00.0`."""
    found = []
    for device in sorted(_entries(devices)):
        name = _ACCELERATORS.get((_text(device / "vendor"), _text(device / "class")[:6]))
        if name:
            found.append(f"{name} at {device.name}")
    return tuple(found)


def _entries(directory: Path) -> Iterable[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return ()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip().lower()
    except OSError:
        return ""
