"""A fake of the NVML binding with the binding's errors: boards, their MIG instances, their faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
from pynvml import NVMLError as NVMLError


@dataclass(frozen=True, kw_only=True)
class Board:
    """One GPU. `mig` is None for a board without MIG; `fault` is the error of a call on the board."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    bus_id: str = "00000000:3B:00.0"
    serial: str | None = None
    mig: Sequence[tuple[str, str] | None] | None = None
    split: bool = False
    fault: int | None = None


@dataclass(kw_only=True)
class FakeNvml:
    """The part of `pynvml` that `nvml_listing.listing` uses. `fault` is the error of the first call."""

    boards: Sequence[Board] = ()
    fault: int | None = None
    open: int = field(default=0, init=False)

    NVMLError = pynvml.NVMLError
    NVMLError_LibraryNotFound = pynvml.NVMLError_LibraryNotFound
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVMLError_NotFound = pynvml.NVMLError_NotFound
    NVMLError_FunctionNotFound = pynvml.NVMLError_FunctionNotFound
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE

    def nvmlInit(self) -> None:
        _raise(self.fault)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.54.15"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        _raise(self.boards[index].fault)
        return self.boards[index]

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return f"NVIDIA A100-SXM4-40GB MIG {handle[0]}" if isinstance(handle, tuple) else str(handle.name)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return str(handle[1] if isinstance(handle, tuple) else handle.uuid)

    def nvmlDeviceGetPciInfo(self, handle: Board) -> Any:
        return SimpleNamespace(busId=handle.bus_id)

    def nvmlDeviceGetSerial(self, handle: Board) -> str:
        if handle.serial is None:
            _raise(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return str(handle.serial)

    def nvmlDeviceGetMigMode(self, handle: Board) -> list[int]:
        if handle.mig is None:
            _raise(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle.split), int(handle.split)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Board) -> int:
        return len(handle.mig or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Board, index: int) -> tuple[str, str]:
        instance = (handle.mig or ())[index]
        if instance is None:
            raise NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return instance


def _raise(code: int | None) -> None:
    if code is not None:
        raise NVMLError(code)
