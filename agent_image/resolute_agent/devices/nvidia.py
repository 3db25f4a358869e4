"""Pure: what NVML and `nvidia-smi` list, as devices.

A GPU that is split offers its MIG instances, any other one itself, also side by side on one machine. A GPU that has
fallen off the bus is named in `Listing.unusable` and offers nothing; the others continue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from resolute.errors import InvalidInput
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_agent.devices.tools import DetectionFailed

QUERY: tuple[str, ...] = ("index", "uuid", "pci.bus_id", "serial", "driver_version", "mig.mode.current", "name")
"""The fields of `nvidia-smi --query-gpu`. The name comes last: it alone may contain a comma."""

QUERY_WITHOUT_MIG = tuple(field for field in QUERY if field != "mig.mode.current")
"""For drivers before 450, which know no MIG and refuse the field."""

UNKNOWN_FIELD = "is not a valid field to query"

_LOST = re.compile(r"unable to determine the device handle for|is lost|requires reset", re.IGNORECASE)
_LISTED_GPU = re.compile(r"GPU\s+\d+:.*\(UUID:\s*(?P<uuid>GPU-[^)\s]+)\s*\)")
_LISTED_MIG = re.compile(r"\s+MIG\s+(?P<profile>\S+)\s+Device\s+\d+:\s+\(UUID:\s*(?P<uuid>MIG-[^)\s]+)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A part of a split GPU: its profile (`1g.5gb`) and UUID (`MIG-...`, before driver 470 `MIG-GPU-.../1/0`)."""

    profile: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One board. `mig` is None unless it is in MIG mode; then it holds its instances, perhaps none."""

    index: int
    name: str
    uuid: str
    bus_id: str = ""
    serial: str = ""
    mig: tuple[MigInstance, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a tool listed. `unusable` has the driver's message for each GPU that does not work."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    unusable: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------------- parsing


def parse_nvml(text: str) -> Listing | None:
    """The object that `nvml_listing` prints; None where there is no NVML. Raises `DetectionFailed` with the driver's message."""
    try:
        said: Mapping[str, Any] = json.loads(text)
        if "absent" in said:
            return None
        if "error" in said:
            raise DetectionFailed(str(said["error"]))
        gpus = tuple(
            Gpu(
                index=gpu["index"],
                name=gpu["name"],
                uuid=gpu["uuid"],
                bus_id=gpu["bus_id"],
                serial=gpu["serial"],
                mig=None if gpu["mig"] is None else tuple(MigInstance(**instance) for instance in gpu["mig"]),
            )
            for gpu in said["gpus"]
        )
        return Listing(gpus=gpus, driver=said["driver"], unusable=tuple(said["unusable"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DetectionFailed(f"NVML's listing cannot be read ({error!r}): {text[:200]!r}") from error


def parse_query(text: str, fields: Sequence[str] = QUERY) -> tuple[Listing, frozenset[str]]:
    """Lines of `nvidia-smi --query-gpu --format=csv,noheader`: the GPUs, and the UUIDs of those in MIG mode."""
    gpus: list[Gpu] = []
    unusable: list[str] = []
    split: set[str] = set()
    driver = ""
    for line in filter(None, (line.strip() for line in text.splitlines())):
        values = [part.strip() for part in line.split(",", len(fields) - 1)]
        row = dict(zip(fields, values, strict=False))
        if len(values) == len(fields) and values[0].isdigit() and row["uuid"].startswith("GPU-"):
            gpu = Gpu(
                index=int(values[0]),
                name=row["name"],
                uuid=row["uuid"],
                bus_id=row["pci.bus_id"],
                serial="" if row["serial"].startswith("[") else row["serial"],
            )
            gpus.append(gpu)
            driver = row["driver_version"]
            if row.get("mig.mode.current") == "Enabled":
                split.add(gpu.uuid)
        elif _LOST.search(line) or (values[0].isdigit() and "[" in line):
            unusable.append(line)
        else:
            raise DetectionFailed(f"nvidia-smi printed {line!r}, which describes no device")
    gpus.sort(key=lambda gpu: gpu.index)
    return Listing(gpus=tuple(gpus), driver=driver, unusable=tuple(unusable)), frozenset(split)


def with_instances(listing: Listing, split: Iterable[str], text: str) -> Listing:
    """The listing, with the MIG instances that `nvidia-smi -L` (the text) shows below each GPU that is split."""
    instances: dict[str, list[MigInstance]] = {uuid: [] for uuid in split}
    parent = ""
    for line in text.splitlines():
        if found := _LISTED_GPU.match(line):
            parent = found["uuid"]
        elif (found := _LISTED_MIG.match(line)) and parent in instances:
            instances[parent].append(MigInstance(profile=found["profile"], uuid=found["uuid"]))
    gpus = tuple(replace(gpu, mig=tuple(instances[gpu.uuid])) if gpu.uuid in instances else gpu for gpu in listing.gpus)
    return replace(listing, gpus=gpus)


# ----------------------------------------------------------------------------------------------------------- devices


def devices(listing: Listing, visible: Sequence[str] = ()) -> tuple[Device, ...]:
    """The slots, in the order of the PCI bus. `visible` names GPUs by index, UUID, PCI address or serial number, and
    MIG instances by UUID; the beginning of a UUID is enough. Empty: all.

    Without a split GPU a slot has its GPU's index; with one the slots are counted from 0. Raises `InvalidInput` for a
    name of none, `DetectionFailed` for a GPU in MIG mode that has no instance.
    """
    chosen = tuple(_chosen(listing, visible)) if visible else listing.gpus
    for gpu in chosen:
        if gpu.mig == ():
            raise DetectionFailed(
                f"GPU {gpu.index} ({gpu.uuid}) is in MIG mode and has no instance; create some (nvidia-smi mig -cgi), "
                "end its MIG mode (nvidia-smi -mig 0), or leave it out with visible_gpus"
            )
    if all(gpu.mig is None for gpu in chosen):
        return tuple(Device(index=gpu.index, kind=SlotKind.CUDA, brand=gpu.name, uuid=gpu.uuid) for gpu in chosen)
    slots = [slot for gpu in chosen for slot in _slots(gpu)]
    return tuple(
        Device(index=index, kind=SlotKind.CUDA, brand=brand, uuid=uuid) for index, (brand, uuid) in enumerate(slots)
    )


def _slots(gpu: Gpu) -> list[tuple[str, str]]:
    if gpu.mig is None:
        return [(gpu.name, gpu.uuid)]
    return [(f"{gpu.name} MIG {instance.profile}", instance.uuid) for instance in gpu.mig]


def _chosen(listing: Listing, visible: Sequence[str]) -> Iterable[Gpu]:
    for name in visible:
        # Beside a GPU that is lost the name may be its own: it is left out, as the agent's log says.
        if not listing.unusable and not any(_is(gpu, name) or _instances(gpu, name) for gpu in listing.gpus):
            raise InvalidInput(f"visible_gpus: {name!r} is no device here; {_known(listing)}")
    for gpu in listing.gpus:
        if any(_is(gpu, name) for name in visible):
            yield gpu
        elif gpu.mig and (named := {instance for name in visible for instance in _instances(gpu, name)}):
            yield replace(gpu, mig=tuple(instance for instance in gpu.mig if instance in named))


def _is(gpu: Gpu, name: str) -> bool:
    if name.isdigit():
        return name in (str(gpu.index), gpu.serial)
    if ":" in name:
        return gpu.bus_id.lower().endswith(name.lower().lstrip("0"))
    return name == gpu.serial or gpu.uuid.startswith(name)


def _instances(gpu: Gpu, name: str) -> list[MigInstance]:
    return [instance for instance in gpu.mig or () if name.startswith("MIG-") and instance.uuid.startswith(name)]


def _known(listing: Listing) -> str:
    there = [f"{gpu.index} ({gpu.uuid})" for gpu in listing.gpus]
    there += [instance.uuid for gpu in listing.gpus for instance in gpu.mig or ()]
    broken = f"; not usable: {'; '.join(listing.unusable)}" if listing.unusable else ""
    return f"there are {', '.join(there) or 'none'}{broken}"
