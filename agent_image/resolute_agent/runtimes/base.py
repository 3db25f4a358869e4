"""The runtime port: containers by id, each with a command, output, a lease and an end.

Contract, checked by one conformance suite over every implementation:

- `start` returns once the command runs. It raises `LaunchRefused` when such a task can never run here, `LaunchFailed`
  when it did not work this time, `LaunchAborted` when it was killed meanwhile; then nothing of it is left running.
- A started container does not depend on the agent: it continues when the agent ends and is handed back by `adopt` to the next
  one. Its lease is its own: when `lease_s` pass without `renew`, the container is ended with AGENT_FAILED.
- `wait` returns the end, as often as it is asked, until `forget`. When it returns, no process of the container is left.
- `kill` asks politely, and ends the container after the grace. Repeating it is harmless, and a shorter grace wins;
  unknown and ended containers are success. It returns when the request is durable, not when the container is gone.
- `adopt` lists everything that is not forgotten. It undoes a start whose end the last agent did not record.
- Output is a sequence of bytes for each of `STREAMS` that only grows; it can be read until `forget`.
- `forget` of a running container is refused (`FailedPrecondition`); of an unknown one it is success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from resolute.errors import ResoluteError
from resolute.wire.agent_link import ContainerSpec, Device, Exit, NoticeFile
from resolute_agent.state import Found

STREAMS = ("stdout", "stderr")
"""The names of a container's output streams: the `stdtype` of log lines."""


class LaunchRefused(ResoluteError):
    """Such a task cannot run on this machine, now or later; the text is the reason."""


class LaunchAborted(ResoluteError):
    """The container was killed before its command ran."""


class LaunchFailed(ResoluteError):
    """The launch failed this time; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Facts of the agent about a start: its part of the task's environment, and the duration of the first lease."""

    environment: Mapping[str, str]
    devices: tuple[Device, ...]
    lease_s: float
    address: str = ""
    """The address for tasks on other machines; empty if the agent has none."""
    master_cert: str = ""
    """PEM of the authority of an https master, for the run directory; empty where the machine trusts it by itself."""


class Runtime(Protocol):
    async def start(self, spec: ContainerSpec, context: TaskContext) -> None: ...

    async def adopt(self) -> tuple[Found, ...]: ...

    async def wait(self, container_id: str) -> Exit: ...

    async def kill(self, container_id: str, grace_s: float) -> None: ...

    def renew(self, container_id: str, lease_s: float) -> None:
        """The container may continue for `lease_s` from now. Never shortens a lease."""
        ...

    def notify(self, container_id: str, notice: NoticeFile) -> None:
        """Put the notice into the run directory, and send SIGTERM to a process that registered for it."""
        ...

    def read_output(self, container_id: str, stream: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`; empty when there is nothing more now."""
        ...

    def output_size(self, container_id: str, stream: str) -> int:
        """Bytes that were written so far."""
        ...

    def output_time(self, container_id: str, stream: str, offset: int) -> datetime | None:
        """Time at which the byte at `offset` was written; `None` if unknown. Offsets are requested in order."""
        ...

    async def output_grown(self, container_id: str, offsets: Mapping[str, int]) -> None:
        """Return when some stream is longer than its offset, or when the container has ended."""
        ...

    def output_ended(self, container_id: str) -> bool:
        """No more output will be appended."""
        ...

    def offsets(self, container_id: str) -> Mapping[str, int]:
        """Up to where the output has been stored by the master; 0 for a fresh container."""
        ...

    def save_offsets(self, container_id: str, offsets: Mapping[str, int]) -> None: ...

    async def forget(self, container_id: str) -> None: ...


@runtime_checkable
class Closing(Protocol):
    """A runtime that holds connections of its own."""

    async def close(self) -> None:
        """Let go of them; containers continue."""
        ...
