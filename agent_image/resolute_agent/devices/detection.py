"""The devices for a slot type.

A tool that is there and does not work is an error, never a machine without slots: a GPU machine that quietly offers its
processor would train for weeks.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from resolute.errors import InvalidInput
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_agent.devices import nvidia, rocm, tools
from resolute_agent.devices.tools import PCI_DEVICES, TOOL_TIMEOUT_S, DetectionFailed

log = logging.getLogger(__name__)

NVML_LISTING = (sys.executable, "-m", "resolute_agent.devices.nvml_listing")

HIDES_ALL = frozenset({"-1", "none", "void", "nodevfiles"})
"""What CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES hold to hide every GPU."""


def detect(
    slot_type: str,
    *,
    artificial_slots: int,
    agent_id: str,
    visible_gpus: Sequence[str] = (),
    search_path: str | None = None,
    nvml_listing: Sequence[str] = NVML_LISTING,
    pci_devices: Path = PCI_DEVICES,
    limit_s: float = TOOL_TIMEOUT_S,
) -> tuple[Device, ...]:
    """The devices for a slot type (`auto`, `cpu`, `cuda` or `gpu`, `rocm`, `none`); artificial slots win over all.

    `search_path` is where the vendors' tools are looked for (`None`: the process's own PATH), `nvml_listing` the command
    that asks NVML, `limit_s` how long each may take. Raises `DetectionFailed` and `InvalidInput` with what to do.
    """
    if artificial_slots:
        return artificial(artificial_slots, agent_id)
    machine = _Machine(search_path, nvml_listing, limit_s)
    match slot_type:
        case "none":
            return ()
        case "cpu":
            return (cpu(),)
        case "cuda" | "gpu":
            return _needed(machine.cuda(visible_gpus), "neither NVML nor nvidia-smi is on this machine", slot_type)
        case "rocm":
            return _needed(machine.rocm(visible_gpus), "neither rocm-smi nor amd-smi is on PATH", slot_type)
        case "auto":
            return _automatic(machine, visible_gpus, pci_devices)
        case _:
            raise InvalidInput(f"slot_type: {slot_type!r} is none of auto, cpu, cuda, gpu, rocm, none")


def keep_numbers(found: Sequence[Device], before: Sequence[Device]) -> tuple[Device, ...]:
    """Devices that are found again keep the slot numbers that they had: tasks and operators know them by those."""
    known = {device.uuid: device.index for device in before}
    taken = {known[device.uuid] for device in found if device.uuid in known}
    kept = []
    for device in found:
        index = known.get(device.uuid)
        if index is None:
            index = device.index
            while index in taken:
                index += 1
            taken.add(index)
        kept.append(replace(device, index=index))
    return tuple(sorted(kept, key=lambda device: device.index))


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


def _needed(devices: tuple[Device, ...] | None, missing: str, slot_type: str) -> tuple[Device, ...]:
    if devices is None:
        raise DetectionFailed(
            f"{missing}, and slot_type {slot_type} requires its devices; install the driver, or set slot_type to cpu or auto"
        )
    return devices


def _automatic(machine: _Machine, visible: Sequence[str], pci_devices: Path) -> tuple[Device, ...]:
    if visible and all(name.lower() in HIDES_ALL for name in visible):
        return (cpu(),)
    for ask in (machine.cuda, machine.rocm):
        if (devices := ask(visible)) is not None:
            return devices
    unused = tools.accelerators_on_the_bus(pci_devices)
    if unused:
        raise DetectionFailed(
            f"this machine has a GPU ({', '.join(unused)}) and no tool of its driver; install the driver, or set "
            "slot_type to cpu to train on the processor"
        )
    return (cpu(),)


class _Machine:
    """Queries the tools. Each query returns None if the vendor's tools are not installed."""

    def __init__(self, search_path: str | None, nvml_listing: Sequence[str], limit_s: float) -> None:
        self._search_path = search_path
        self._nvml_listing = nvml_listing
        self._limit_s = limit_s

    def cuda(self, visible: Sequence[str]) -> tuple[Device, ...] | None:
        listing = self._nvml()
        source = "NVML"
        if listing is None:
            listing, source = self._nvidia_smi(), "nvidia-smi"
        if listing is None:
            return None
        for what in listing.unusable:
            log.error("a GPU of this machine is not usable and is left out: %s; %s", what, tools.repair(what))
        if not listing.gpus:
            broken = "; ".join(listing.unusable)
            raise DetectionFailed(
                f"{source}: no GPU is usable: {broken}; {tools.repair(broken)}" if broken else _no_gpu(source)
            )
        log.info("%d GPUs by %s, driver %s", len(listing.gpus), source, listing.driver or "unknown")
        found = nvidia.devices(listing, visible)
        if not found:
            raise DetectionFailed(
                f"{source}: none of visible_gpus {list(visible)} is usable: {'; '.join(listing.unusable)}"
            )
        return found

    def _nvml(self) -> nvidia.Listing | None:
        if not self._nvml_listing:
            return None
        answer = tools.ask(*self._nvml_listing, limit_s=self._limit_s)
        if answer.code != 0:
            # The library has crashed in its own process: the vendor's tool may say why.
            log.error("the listing by NVML ended with code %d: %s", answer.code, answer.said)
            return None
        try:
            return nvidia.parse_nvml(answer.out)
        except DetectionFailed as error:
            raise DetectionFailed(f"NVML: {error}; {tools.repair(str(error))}") from error

    def _nvidia_smi(self) -> nvidia.Listing | None:
        tool = tools.find("nvidia-smi", self._search_path)
        if not tool:
            return None
        fields = nvidia.QUERY
        answer = self._query(tool, fields)
        if nvidia.UNKNOWN_FIELD in answer.out + answer.err:
            fields = nvidia.QUERY_WITHOUT_MIG
            answer = self._query(tool, fields)
        try:
            listing, split = nvidia.parse_query(answer.out, fields)
        except DetectionFailed:
            if answer.code != 0:
                raise answer.failed() from None
            raise
        if answer.code != 0 and not listing.gpus:
            raise answer.failed()
        if split:
            listing = nvidia.with_instances(listing, split, tools.ask(tool, "-L", limit_s=self._limit_s).out)
        return listing

    def _query(self, tool: str, fields: Sequence[str]) -> tools.Answer:
        return tools.ask(tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", limit_s=self._limit_s)

    def rocm(self, visible: Sequence[str]) -> tuple[Device, ...] | None:
        if tool := tools.find("rocm-smi", self._search_path):
            answer = tools.ask(tool, *rocm.ROCM_SMI_QUERY, limit_s=self._limit_s)
            if answer.code != 0:
                answer = tools.ask(tool, *rocm.ROCM_SMI_QUERY_WITHOUT_NAMES, limit_s=self._limit_s)
            parse = rocm.parse_rocm_smi
        elif tool := tools.find("amd-smi", self._search_path):
            answer = tools.ask(tool, *rocm.AMD_SMI_QUERY, limit_s=self._limit_s)
            parse = rocm.parse_amd_smi
        else:
            return None
        if answer.code != 0:
            raise answer.failed()
        devices = parse(answer.out)
        if not devices:
            raise DetectionFailed(_no_gpu(answer.command))
        return rocm.visible_only(devices, visible) if visible else devices


def _no_gpu(source: str) -> str:
    return f"{source} lists no GPU; repair the driver, or set slot_type to cpu"
