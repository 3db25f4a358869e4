"""The program that asks NVML which GPUs there are: `python -m resolute_agent.devices.nvml_listing` prints one JSON object.

A process of its own, because a driver that has failed may hang or crash its caller, and because a process that
has once loaded the library keeps it when the driver is upgraded. The object is one of

    {"absent": "why there is no NVML here"}
    {"error": "what the driver says"}
    {"driver": "550.54.15", "gpus": [{"index", "name", "uuid", "bus_id", "serial", "mig"}], "unusable": ["..."]}

where `mig` is null for a GPU that is not split, else a list of {"profile", "uuid"}.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def listing(nvml: Any) -> dict[str, Any]:
    """The object, of an NVML binding (the module `pynvml`, or what behaves like it)."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound as error:
        return {"absent": str(error)}
    except nvml.NVMLError as error:
        return {"error": str(error)}
    try:
        gpus: list[dict[str, Any]] = []
        unusable: list[str] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_gpu(nvml, index))
            except nvml.NVMLError as error:
                unusable.append(f"GPU {index}: {error}")
        return {"driver": _text(nvml.nvmlSystemGetDriverVersion()), "gpus": gpus, "unusable": unusable}
    except nvml.NVMLError as error:
        return {"error": str(error)}
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "index": index,
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "bus_id": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        "serial": _serial(nvml, handle),
        "mig": _mig(nvml, handle),
    }


def _serial(nvml: Any, handle: Any) -> str:
    try:
        return _text(nvml.nvmlDeviceGetSerial(handle))
    except nvml.NVMLError_NotSupported:  # boards for desktops have none
        return ""


def _mig(nvml: Any, handle: Any) -> list[dict[str, str]] | None:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):  # older boards, older drivers
        return None
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError_NotFound:  # a place where no instance was made
            continue
        name = _text(nvml.nvmlDeviceGetName(instance))
        instances.append({"profile": name.rpartition("MIG ")[2], "uuid": _text(nvml.nvmlDeviceGetUUID(instance))})
    return instances


def _text(value: Any) -> str:
    """Older releases of the binding answer bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def main() -> int:
    try:
        import pynvml
    except ImportError as error:
        answer: dict[str, Any] = {"absent": f"the package nvidia-ml-py is not installed: {error}"}
    else:
        answer = listing(pynvml)
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
