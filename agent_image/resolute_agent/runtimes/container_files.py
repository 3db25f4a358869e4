"""The part of a runtime that is files: a container's lease, what it wrote, when, and how far of it was stored.

The process that follows a container's output (a supervisor, or the reader of an engine) writes it to `<homes>/<container>/<stream>`
and the times beside it. Both runtimes for real containers read it from there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from resolute.beneath import Beneath, LeadsOut
from resolute.wire.agent_link import NoticeFile
from resolute_agent import supervisor
from resolute_agent.runtimes.base import STREAMS
from resolute_agent.runtimes.stamps import StampReader

log = logging.getLogger(__name__)

NOTICE, NOTICE_PID = "notice.json", "notice.pid"
"""In a run directory: the notice of the machine, and the process that gets a signal for it."""

MAX_NUMBER_BYTES = 32
"""Bytes of `NOTICE_PID` that are read; a pid has fewer digits."""

LEASE_GRACE_S = 5.0
"""Time before the end of its lease at which a task is asked to end; a quarter of a shorter lease."""


class ContainerFiles:
    """Containers by their directories below `homes`."""

    def __init__(self, homes: Path) -> None:
        self._homes = homes
        self._leases: dict[str, float] = {}
        self._stamps: dict[tuple[str, str], StampReader] = {}

    def _home(self, container_id: str) -> Path:
        return self._homes / container_id

    def _write_lease(self, container_id: str, lease_s: float) -> None:
        until = supervisor.boot_time() + lease_s
        if until > self._leases.get(container_id, 0.0):
            self._leases[container_id] = until
            text = f"{until:.3f} {min(LEASE_GRACE_S, lease_s / 4):.3f}"
            supervisor.write_small(str(self._home(container_id) / supervisor.LEASE), text.encode(), durable=False)

    def read_output(self, container_id: str, stream: str, offset: int, limit: int) -> bytes:
        try:
            descriptor = os.open(self._home(container_id) / stream, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)

    def output_time(self, container_id: str, stream: str, offset: int) -> datetime | None:
        reader = self._stamps.get((container_id, stream))
        if reader is None:
            reader = self._stamps[container_id, stream] = StampReader(self._home(container_id) / f"{stream}.times")
        return reader.at(offset)

    def output_ended(self, container_id: str) -> bool:
        # Asked several times a second of each container: a `Path` takes longer to make than the look takes.
        home = f"{self._homes}/{container_id}"
        return os.path.exists(f"{home}/{supervisor.EXIT}") or not os.path.isdir(home)

    def output_size(self, container_id: str, stream: str) -> int:
        """Bytes that were written so far."""
        try:
            return os.stat(f"{self._homes}/{container_id}/{stream}").st_size
        except FileNotFoundError:
            return 0

    def offsets(self, container_id: str) -> Mapping[str, int]:
        saved = supervisor.read_json(str(self._home(container_id) / supervisor.OFFSETS))
        return {stream: int(saved.get(stream, 0)) for stream in STREAMS} if isinstance(saved, dict) else {}

    def save_offsets(self, container_id: str, offsets: Mapping[str, int]) -> None:
        home = self._home(container_id)
        if home.is_dir():
            supervisor.write_small(str(home / supervisor.OFFSETS), json.dumps(dict(offsets)).encode(), durable=False)

    def _put_notice(self, home: Path, notice: NoticeFile) -> int | None:
        """Put a notice into a run directory; the number of the process that registered for it, as the task sees it, or None: a
        signal would end a task that does not expect it.

        The directory is the task's, which may put anything in the place of the two files.
        """
        try:
            with Beneath.at(home / "run") as run:
                run.replace_file(NOTICE, msgspec.json.encode(notice))
        except (OSError, LeadsOut) as error:
            log.warning("container %s: the notice could not be written for its task: %s", home.name, error)
        try:
            with Beneath.at(home / "run") as run, run.open_file(NOTICE_PID) as file:
                number = int(file.read(MAX_NUMBER_BYTES))
        except (OSError, LeadsOut, ValueError):
            return None
        return number if number > 0 else None

    def _forget(self, container_id: str) -> None:
        """Drops what is in memory about a container. The owner of its directory removes the directory."""
        self._leases.pop(container_id, None)
        for stream in STREAMS:
            self._stamps.pop((container_id, stream), None)
