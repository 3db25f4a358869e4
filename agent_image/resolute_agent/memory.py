"""What survives a restart of the agent: a port with two implementations.

`save` returns when the state is durable; `load` returns the last saved state, or `None` for a fresh machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import msgspec

from resolute.errors import InvalidInput
from resolute_agent.state import Durable


class Memory(Protocol):
    def load(self) -> Durable | None: ...

    def save(self, durable: Durable) -> None: ...


class HeldMemory:
    """Kept in this object: survives an agent object, not a process. For tests and the simulator."""

    def __init__(self) -> None:
        self._durable: Durable | None = None

    def load(self) -> Durable | None:
        return self._durable

    def save(self, durable: Durable) -> None:
        self._durable = durable


class FileMemory:
    """One JSON file, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Durable | None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(text, type=Durable)
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"{self._path}: not the state of an agent ({error}); move it away to start this agent afresh"
            ) from error

    def save(self, durable: Durable) -> None:
        write_durably(self._path, msgspec.json.encode(durable))


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, also after a crash, finds the old content or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
