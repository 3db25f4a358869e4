"""The slots of this machine.

`parse_*` read the text of the vendors' tools and are pure. A tool that is there and does not work is an error, never a
machine without slots: a GPU machine that quietly offers its processor would train for weeks.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from resolute.errors import InvalidInput, ResoluteError
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind

TOOL_TIMEOUT_S = 30.0

_NVIDIA_QUERY = ("--query-gpu=index,name,uuid,mig.mode.current", "--format=csv,noheader")
_ROCM_QUERY = ("--showuniqueid", "--showproductname", "--json")


class DetectionFailed(ResoluteError):
    """The machine has devices that cannot be listed; the text says what failed."""


def detect(
    slot_type: str,
    *,
    artificial_slots: int,
    agent_id: str,
    visible_gpus: Sequence[str] = (),
    search_path: str | None = None,
) -> tuple[Device, ...]:
    """The devices for a slot type (`auto`, `cpu`, `cuda` or `gpu`, `rocm`, `none`); artificial slots win over all.

    `search_path` is where the vendors' tools are looked for; `None` is the process's own PATH.
    """
    if artificial_slots:
        return artificial(artificial_slots, agent_id)
    match slot_type:
        case "none":
            return ()
        case "cpu":
            return (cpu(),)
        case "cuda" | "gpu":
            return _cuda(_tool("nvidia-smi", search_path, required=True), visible_gpus)
        case "rocm":
            return _rocm(_tool("rocm-smi", search_path, required=True), visible_gpus)
        case "auto":
            if tool := _tool("nvidia-smi", search_path):
                return _cuda(tool, visible_gpus)
            if tool := _tool("rocm-smi", search_path):
                return _rocm(tool, visible_gpus)
            return (cpu(),)
        case _:
            raise InvalidInput(f"slot_type: {slot_type!r} is none of auto, cpu, cuda, gpu, rocm, none")


def artificial(count: int, agent_id: str) -> tuple[Device, ...]:
    """`count` slots without devices, the same for the same agent at each start."""
    return tuple(
        Device(index=index, kind=SlotKind.CPU, brand="Artificial", uuid=f"{agent_id}-artificial-{index}")
        for index in range(count)
    )


def cpu() -> Device:
    """One slot for all processors of the machine."""
    return Device(index=0, kind=SlotKind.CPU, brand=f"{_cpu_model()} x {os.cpu_count() or 1}", uuid="cpu-0")


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


def _cuda(tool: str, visible: Sequence[str]) -> tuple[Device, ...]:
    devices, mig = parse_nvidia(_run(tool, *_NVIDIA_QUERY))
    if mig:
        devices = parse_nvidia_mig(_run(tool, "-L"))
    elif visible:
        devices = only_visible(devices, visible)
    return _some(devices, tool)


def _rocm(tool: str, visible: Sequence[str]) -> tuple[Device, ...]:
    devices = parse_rocm(_run(tool, *_ROCM_QUERY))
    return _some(only_visible(devices, visible) if visible else devices, tool)


def _some(devices: tuple[Device, ...], tool: str) -> tuple[Device, ...]:
    if not devices:
        raise DetectionFailed(f"{tool} lists no GPU; repair the driver, or set slot_type to cpu")
    return devices


def _tool(name: str, search_path: str | None, *, required: bool = False) -> str:
    """The path of a vendor's tool; empty when it is not there and need not be."""
    found = shutil.which(name, path=search_path)
    if found is None and required:
        raise DetectionFailed(
            f"{name} is not on PATH, and the slot type asks for its devices; set slot_type to cpu or auto"
        )
    return found or ""


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DetectionFailed(f"{command[0]} did not answer: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[:500]
        raise DetectionFailed(
            f"{' '.join(command)} ended with code {done.returncode}: {said}; repair the driver, or set slot_type"
        )
    return done.stdout


def parse_nvidia(text: str) -> tuple[tuple[Device, ...], bool]:
    """Devices of `index, name, uuid, mig mode` lines, and whether the first GPU is split into MIG instances."""
    devices = []
    mig = False
    for number, line in enumerate(filter(None, (line.strip() for line in text.splitlines()))):
        fields = [part.strip() for part in line.split(",")]
        if len(fields) < 4 or not fields[0].isdigit():
            raise DetectionFailed(f"nvidia-smi said {line!r}, which is no device")
        # A product name may hold a comma: the first field and the last two are fixed.
        index, uuid, mode = int(fields[0]), fields[-2], fields[-1]
        if number == 0:
            mig = mode == "Enabled"
        devices.append(Device(index=index, kind=SlotKind.CUDA, brand=", ".join(fields[1:-2]), uuid=uuid))
    return tuple(sorted(devices, key=lambda device: device.index)), mig


def parse_nvidia_mig(text: str) -> tuple[Device, ...]:
    """MIG instances of `nvidia-smi -L`, numbered in the order in which they are listed."""
    pattern = re.compile(
        r"^\s+MIG\s+(?P<profile>\S+)\s+Device\s+\d+:\s+\(UUID:\s*(?P<uuid>MIG-[^)\s]+)\s*\)", re.MULTILINE
    )
    return tuple(
        Device(index=index, kind=SlotKind.CUDA, brand=f"MIG {found['profile']}", uuid=found["uuid"])
        for index, found in enumerate(pattern.finditer(text))
    )


def parse_rocm(text: str) -> tuple[Device, ...]:
    """Cards of `rocm-smi --json`, by their number."""
    try:
        cards: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise DetectionFailed(f"rocm-smi did not answer in JSON: {text[:200]!r}") from error
    devices = []
    for name, facts in cards.items():
        if match := re.fullmatch(r"card(\d+)", name):
            uuid = facts.get("Unique ID")
            if not uuid:
                raise DetectionFailed(f"rocm-smi names no unique id for {name}")
            brand = facts.get("Card series") or facts.get("Card Series") or "AMD GPU"
            devices.append(Device(index=int(match.group(1)), kind=SlotKind.ROCM, brand=brand, uuid=uuid))
    return tuple(sorted(devices, key=lambda device: device.index))


def only_visible(devices: Sequence[Device], visible: Sequence[str]) -> tuple[Device, ...]:
    """The devices named by index or UUID (a prefix of it is enough). Raises `InvalidInput` for a name of none."""
    for name in visible:
        if not any(_named(device, name) for device in devices):
            raise InvalidInput(f"visible_gpus: {name!r} is no device here; there are {[d.uuid for d in devices]}")
    return tuple(device for device in devices if any(_named(device, name) for name in visible))


def _named(device: Device, name: str) -> bool:
    return str(device.index) == name or (not name.isdigit() and device.uuid.startswith(name))
