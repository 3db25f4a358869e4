"""What survives a restart of the agent: a port with two implementations.

`save` returns when the state is durable; `load` returns the last saved state, or `None` for a fresh machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from resolute.errors import InvalidInput
from resolute_agent.state import Durable
from resolute_agent.supervisor import write_whole


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
        write_whole(str(self._path), msgspec.json.encode(durable))
