"""Pure: what `rocm-smi` and `amd-smi` list, as devices.

A card without a unique id is one that is built into the processor: it is no slot.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from resolute.errors import InvalidInput
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_agent.devices.tools import DetectionFailed

ROCM_SMI_QUERY = ("--showuniqueid", "--showproductname", "--json")
ROCM_SMI_QUERY_WITHOUT_NAMES = ("--showuniqueid", "--json")
"""Some releases fail to look a product's name up."""
AMD_SMI_QUERY = ("list", "--json")

_UNIQUE_ID = re.compile(r"0x[0-9a-f]{1,16}")
_NAMES = ("Card Series", "Card series", "Device Name", "Card Model", "Card model")


def parse_rocm_smi(text: str) -> tuple[Device, ...]:
    """Cards of `rocm-smi --json`, by their number."""
    found = []
    for name, facts in _json(text, "rocm-smi", "{").items():
        if match := re.fullmatch(r"card(\d+)", name):
            uuid = str(facts.get("Unique ID", "")).lower()
            if _UNIQUE_ID.fullmatch(uuid):
                brand = next((str(facts[key]) for key in _NAMES if facts.get(key) not in (None, "", "N/A")), "AMD GPU")
                found.append(Device(index=int(match.group(1)), kind=SlotKind.ROCM, brand=brand, uuid=uuid))
    return _distinct(found)


def parse_amd_smi(text: str) -> tuple[Device, ...]:
    """GPUs of `amd-smi list --json`, by their number."""
    said = _json(text, "amd-smi", "[{")
    rows: Sequence[Mapping[str, Any]] = said.get("gpu_data", []) if isinstance(said, dict) else said
    try:
        found = [
            Device(index=int(row["gpu"]), kind=SlotKind.ROCM, brand="AMD GPU", uuid=str(row["uuid"]).lower())
            for row in rows
            if row.get("uuid") not in (None, "", "N/A")
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DetectionFailed(f"amd-smi's listing cannot be read ({error!r}): {text[:200]!r}") from error
    return _distinct(found)


def _json(text: str, tool: str, opening: str) -> Any:
    """The JSON of a tool, behind the warnings that it writes before it."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.lstrip().startswith(tuple(opening))), None)
    try:
        return json.loads("\n".join(lines[start:] if start is not None else []))
    except ValueError as error:
        raise DetectionFailed(f"{tool} did not answer in JSON: {text.strip()[:200]!r}") from error


def _distinct(found: Sequence[Device]) -> tuple[Device, ...]:
    """By number. Partitions of one board share its id: their numbers distinguish them."""
    count = Counter(device.uuid for device in found)
    named = [
        replace(device, uuid=f"{device.uuid}/{device.index}") if count[device.uuid] > 1 else device for device in found
    ]
    return tuple(sorted(named, key=lambda device: device.index))


def visible_only(found: Sequence[Device], visible: Sequence[str]) -> tuple[Device, ...]:
    """The devices named by number or id (its beginning is enough; `GPU-` before it as the runtime writes it). Raises
    `InvalidInput` for a name of none."""
    for name in visible:
        if not any(_named(device, name) for device in found):
            raise InvalidInput(f"visible_gpus: {name!r} is no device here; there are {[d.uuid for d in found]}")
    return tuple(device for device in found if any(_named(device, name) for name in visible))


def _named(device: Device, name: str) -> bool:
    if name.isdigit():
        return str(device.index) == name
    return device.uuid.startswith((name.lower(), f"0x{name.lower().removeprefix('gpu-')}"))


def runtime_name(device: Device) -> str:
    """The device for ROCR_VISIBLE_DEVICES: by its id if the runtime has one for it, otherwise by number."""
    return f"GPU-{device.uuid[2:]}" if _UNIQUE_ID.fullmatch(device.uuid) else str(device.index)
